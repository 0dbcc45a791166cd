"""A broker as production has it: TLS, a user per process, and the access lists that the product prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
from noontide.apps.acls import WRITE, Acl, acls
from noontide.records.topics import DEFAULT_LANES, Layout

PASSWORDS = {
    user: f"pw-{user}-s3cret" for user in ("admin", "scheduler", "worker", "api", "agents", "billing", "operator")
}
SCRAM_USERS = ("scheduler",)
_LISTENER = "listener.name.secure"
_RESOURCES = {
    "topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}  # fmt: skip


def granted(layout: Layout, *, targets: str) -> list[Acl]:
    """What `noontide topics acls` names, and what the scheduler needs for registered topics. targets: prefix."""
    listed = acls(layout, domains=["billing"], lanes=DEFAULT_LANES)
    mine = Acl(role="scheduler", resource="topic", name=targets, operations=(*WRITE, "DescribeConfigs"), prefixed=True)
    return [*listed, mine]


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

    def permit(self, wanted: list[Acl]) -> None:
        """Write access lists; `service:billing` is the user `billing`."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        bindings = list({_binding(each, operation) for each in wanted for operation in each.operations})
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


def _binding(acl: Acl, operation: str) -> AclBinding:
    kind = ResourcePatternType.PREFIXED if acl.prefixed else ResourcePatternType.LITERAL
    user = f"User:{acl.role.removeprefix('service:')}"
    return AclBinding(
        _RESOURCES[acl.resource], acl.name, kind, user, "*", _operation(operation), AclPermissionType.ALLOW
    )


def _operation(name: str) -> AclOperation:
    return AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]
