"""One way to say how Kafka is reached, for two client libraries."""

from __future__ import annotations

import ssl

import pytest

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.core.errors import InvalidDefinition


def test_plain_text_is_the_default() -> None:
    settings = KafkaConnection("one:9092,two:9092").for_aiokafka("feed")
    assert settings["bootstrap_servers"] == "one:9092,two:9092"
    assert settings["client_id"] == "noontide-feed"
    assert (settings["security_protocol"], settings["ssl_context"]) == ("PLAINTEXT", None)


def test_credentials_reach_both_clients() -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "noontide",
        "sasl.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
    }
    connection = KafkaConnection("one:9092", security)
    assert security.items() <= connection.for_confluent("feed").items()
    settings = connection.for_aiokafka("feed")
    assert settings["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("noontide", "secret")
    assert isinstance(settings["ssl_context"], ssl.SSLContext)
    assert not settings["ssl_context"].check_hostname


@pytest.mark.parametrize(
    "bootstrap, security, pointer",
    [
        (" ", {}, "/bootstrap"),
        ("one:9092", {"sasl.user": "x"}, "/security/sasl.user"),
        ("one:9092", {"security.protocol": "TLS"}, "/security/security.protocol"),
    ],
)
def test_a_wrong_setting_is_named(bootstrap: str, security: dict[str, str], pointer: str) -> None:
    with pytest.raises(InvalidDefinition) as refusal:
        KafkaConnection(bootstrap, security)
    assert [problem.pointer for problem in refusal.value.problems] == [pointer]


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(KafkaConnection("one:9092", {"sasl.password": "secret"}))
