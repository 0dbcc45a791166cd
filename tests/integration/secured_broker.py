"""A broker as production has it: TLS, a user per process, and access lists that allow what the documentation says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)  # fmt: skip
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)  # fmt: skip

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.embedded.ports import HOST, wanted_ports

PASSWORDS = {user: f"pw-{user}-s3cret" for user in ("admin", "scheduler", "worker", "billing", "operator")}
SCRAM_USERS = ("scheduler",)
_LISTENER = "listener.name.secure"
READ, WRITE, DESCRIBE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


class Grant(NamedTuple):
    """An entry of an access list; a name that ends in * is a prefix."""

    user: str
    resource: ResourceType
    name: str
    operations: tuple[AclOperation, ...]


def grants(prefix: str, targets: str) -> list[Grant]:
    """The table of docs/how-to/run-in-production.md. targets: prefix of the topics that runs are written to."""
    return [
        Grant("scheduler", TOPIC, f"{prefix}*", (READ, WRITE, AclOperation.DESCRIBE_CONFIGS)),
        Grant("scheduler", TOPIC, f"{targets}*", (DESCRIBE, AclOperation.DESCRIBE_CONFIGS, WRITE)),
        Grant("scheduler", TRANSACTION, f"{prefix}slot-*", (WRITE, DESCRIBE)),
        Grant("scheduler", GROUP, f"{prefix}schedulers", (READ,)),
        *(Grant("worker", TOPIC, f"{prefix}{topic}", (READ,)) for topic in ("runs.*", "worker-inbox", "config")),
        Grant("worker", TOPIC, f"{prefix}worker-events.*", (WRITE, DESCRIBE)),
        Grant("worker", GROUP, f"{prefix}workers*", (READ, DESCRIBE, ALTER, AclOperation.DESCRIBE_CONFIGS)),
        *(Grant("billing", TOPIC, f"{prefix}{topic}", (READ,)) for topic in ("jobs", "rejected", "state", "config")),
        Grant("billing", TOPIC, f"{prefix}requests.billing", (WRITE, DESCRIBE)),
        Grant("operator", TOPIC, f"{prefix}*", (READ,)),
        *(Grant("operator", TOPIC, f"{prefix}{each}", (WRITE,)) for each in ("config", "audit", "requests.public")),
    ]


@dataclass(slots=True, kw_only=True)
class SecuredKafka:
    """address: of the listener that asks who it is."""

    address: str
    ca_file: Path
    broker: EmbeddedKafka

    def settings(self, user: str, *, password: str | None = None) -> dict[str, str]:
        """How a user connects, as librdkafka names it."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512" if user in SCRAM_USERS else "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
            "ssl.ca.location": str(self.ca_file),
        }

    def connection(self, user: str) -> KafkaConnection:
        """As a user."""
        return KafkaConnection(self.address, security=self.settings(user))

    def file(self, user: str, folder: Path) -> Path:
        """The settings of a user in a file for --kafka-config."""
        path = folder / f"{user}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.settings(user).items()))
        return path

    def permit(self, wanted: list[Grant]) -> None:
        """Write access lists."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        bindings = [_binding(grant, operation) for grant in wanted for operation in grant.operations]
        for future in admin.create_acls(bindings).values():
            future.result(10)


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """A broker with a plain listener for the test itself, which may do everything, and one for everybody else."""
    ports = wanted_ports(first=0, names=("plain", "secure", "controller"), remembered={})
    authority, ca_file = trustme.CA(), folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    properties = {**_listeners(ports), **_tls(authority), **_users()}
    with EmbeddedKafka(folder / "kafka", port=ports["plain"], properties=properties, fast_start=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        scram = [UserScramCredentialUpsertion(user, info, PASSWORDS[user].encode()) for user in SCRAM_USERS]
        for future in admin.alter_user_scram_credentials([*scram]).values():
            future.result(10)
        yield SecuredKafka(address=f"{HOST}:{ports['secure']}", ca_file=ca_file, broker=broker)


def _listeners(ports: Mapping[str, int]) -> dict[str, str]:
    plain, secure = f"PLAINTEXT://{HOST}:{ports['plain']}", f"SECURE://{HOST}:{ports['secure']}"
    return {
        "listeners": f"{plain},{secure},CONTROLLER://{HOST}:{ports['controller']}",
        "advertised.listeners": f"{plain},{secure}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{ports['controller']}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }


def _tls(authority: trustme.CA) -> dict[str, str]:
    certificate = authority.issue_cert(HOST)
    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    return {
        f"{_LISTENER}.ssl.keystore.type": "PEM",
        f"{_LISTENER}.ssl.keystore.certificate.chain": "".join(
            each.bytes().decode() for each in certificate.cert_chain_pems
        ),
        f"{_LISTENER}.ssl.keystore.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    }


def _users() -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    known = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{_LISTENER}.plain.sasl.jaas.config": f"{module} {known};",
        f"{_LISTENER}.scram-sha-512.sasl.jaas.config": scram,
    }


def _binding(grant: Grant, operation: AclOperation) -> AclBinding:
    prefixed = grant.name.endswith("*")
    kind = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    name = grant.name.removesuffix("*")
    user = f"User:{grant.user}"
    return AclBinding(grant.resource, name, kind, user, "*", operation, AclPermissionType.ALLOW)
