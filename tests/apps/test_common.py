"""Options, exit codes and ids that the commands share."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from noontide.adapters.kafka.foreign_topics import Unreachable
from noontide.adapters.kafka.requests import NotSent
from noontide.adapters.system_clock import new_id
from noontide.apps.cli.common import Cluster, Fault, fault_of, security_file, security_from
from noontide.core.errors import InvalidDefinition, NoontideError
from noontide.ports.record_log import Doubt

CLUSTER = Cluster(bootstrap="broker.example:9092")


@pytest.mark.parametrize(
    "error, exit_code",
    [
        (Unreachable("nobody"), 3),
        (Doubt("unknown"), 3),
        (NotSent("late", unreachable=True), 3),
        (NotSent("too large", unreachable=False), 1),
        (InvalidDefinition.of("/security/x", "is not known"), 1),
        (NoontideError("other"), 1),
    ],
)
def test_exit_codes(error: NoontideError, exit_code: int) -> None:
    assert fault_of(error, CLUSTER).exit_code == exit_code


def test_unreachable_says_where_and_what_to_do() -> None:
    message = fault_of(Unreachable("no broker answers"), CLUSTER).message
    assert "broker.example:9092" in message
    assert "noontide dev" in message


def test_security_comes_from_variables_with_our_prefix() -> None:
    found = security_from(
        {
            "NOONTIDE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "NOONTIDE_KAFKA_SECURITY_SASL_USERNAME": "ada",
            "NOONTIDE_KAFKA_SECURITY_SSL_CA_LOCATION": "/ca.pem",
            "PATH": "/bin",
        }
    )
    assert found == {"security.protocol": "SASL_SSL", "sasl.username": "ada", "ssl.ca.location": "/ca.pem"}
    Cluster(security=found).connection()


def test_a_setting_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"sasl\.user is|sasl\.user: "):
        Cluster(security={"sasl.user": "ada"}).connection()


def test_security_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# comment\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n")
    assert security_file(file) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    file.write_text("security.protocol\n")
    with pytest.raises(Fault, match=r":1: not NAME=VALUE") as caught:
        security_file(file)
    assert caught.value.exit_code == 2


def test_new_ids_are_uuids_of_version_7_in_order_of_time() -> None:
    ids = [uuid.UUID(new_id()) for _ in range(100)]
    assert {each.version for each in ids} == {7}
    assert {each.variant for each in ids} == {uuid.RFC_4122}
    assert len(set(ids)) == 100
    stamps = [each.int >> 80 for each in ids]
    assert stamps == sorted(stamps)
