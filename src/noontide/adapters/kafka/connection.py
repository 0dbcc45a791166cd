"""How to reach the brokers: one settings object for both client libraries.

Security settings are spelled as in librdkafka and the Java clients (`security.protocol`, `sasl.mechanism`, ...) and are
translated for aiokafka, so that an operator writes them once.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from aiokafka.helpers import create_ssl_context

from noontide.core.errors import InvalidDefinition, Problem

_SETTINGS = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


ConfluentSettings = dict[str, str | int | float | bool]


class AiokafkaSettings(TypedDict):
    """Keyword arguments that every aiokafka client accepts."""

    bootstrap_servers: str
    client_id: str
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str | None


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Addresses and security of a Kafka cluster.

    bootstrap: comma-separated `host:port`.
    security: librdkafka names; see `_SETTINGS` for those that are known. Raises InvalidDefinition for others.
    client_id: prefix of the client ids that brokers see in logs, quotas and metrics.
    """

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds a password
    client_id: str = "noontide"

    def __post_init__(self) -> None:
        if problems := tuple(_problems(self)):
            raise InvalidDefinition(problems)

    def for_aiokafka(self, purpose: str) -> AiokafkaSettings:
        """Keyword arguments for a client whose id ends in `purpose`."""
        return AiokafkaSettings(
            bootstrap_servers=self.bootstrap,
            client_id=f"{self.client_id}-{purpose}",
            security_protocol=self._protocol,
            ssl_context=self._ssl_context(),
            sasl_mechanism=self.security.get("sasl.mechanism", "PLAIN"),
            sasl_plain_username=self.security.get("sasl.username"),
            sasl_plain_password=self.security.get("sasl.password"),
        )

    def for_confluent(self, purpose: str) -> ConfluentSettings:
        """Configuration for a librdkafka client whose id ends in `purpose`."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": f"{self.client_id}-{purpose}",
            "log_level": 2,
            # A restarted broker is tried again within a second instead of the default of up to ten.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            **self.security,
        }

    def for_reader(self, purpose: str) -> ConfluentSettings:
        """Configuration of a consumer without a group: it is told its partitions and offsets, and commits nothing."""
        return {
            **self.for_confluent(purpose),
            "group.id": f"{self.client_id}-{purpose}",  # required by the client
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            # The default of 1 s is how long a full prefetch queue would stop the reading.
            "fetch.queue.backoff.ms": 5,
        }

    @property
    def _protocol(self) -> str:
        return self.security.get("security.protocol", "PLAINTEXT")

    def _ssl_context(self) -> ssl.SSLContext | None:
        if not self._protocol.endswith("SSL"):
            return None
        context: ssl.SSLContext = create_ssl_context(
            cafile=self.security.get("ssl.ca.location"),
            certfile=self.security.get("ssl.certificate.location"),
            keyfile=self.security.get("ssl.key.location"),
            password=self.security.get("ssl.key.password"),
        )
        if self.security.get("ssl.endpoint.identification.algorithm") == "none":
            context.check_hostname = False
        return context


def _problems(connection: KafkaConnection) -> list[Problem]:
    problems = [
        Problem(f"/security/{name}", "is not a known setting; known are " + ", ".join(sorted(_SETTINGS)))
        for name in sorted(set(connection.security) - _SETTINGS)
    ]
    if not connection.bootstrap.strip():
        problems.append(Problem("/bootstrap", "must be a comma-separated list of host:port"))
    if connection.security.get("security.protocol", "PLAINTEXT") not in _PROTOCOLS:
        problems.append(Problem("/security/security.protocol", "must be one of " + ", ".join(_PROTOCOLS)))
    return problems
