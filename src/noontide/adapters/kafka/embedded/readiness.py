"""When a broker may be used: asked of the broker itself, because the others list a dead one for a while."""

from __future__ import annotations

import logging
import socket
import time
from typing import Final

from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError

_QUIET: Final = logging.getLogger(__name__ + ".client")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
_CONNECT_TIMEOUT_S: Final = 0.5
_METADATA_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05


def nodes_seen_by(address: str) -> frozenset[int]:
    """The ids of the brokers that the one at `host:port` knows to be alive; empty when it does not answer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    if not _listens(address):
        return frozenset()
    client = AdminClient({"bootstrap.servers": address}, logger=_QUIET)
    try:
        return frozenset(client.list_topics(timeout=_METADATA_TIMEOUT_S).brokers)
    except KafkaException:
        return frozenset()


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def await_bootstrap(bootstrap: str, *, timeout_s: float) -> None:
    """Return once any broker of a comma separated list answers; EmbeddedKafkaError when none does in time."""
    deadline_s = time.monotonic() + timeout_s
    while not any(nodes_seen_by(address.strip()) for address in bootstrap.split(",")):
        if time.monotonic() > deadline_s:
            raise EmbeddedKafkaError(f"no Kafka broker answers at {bootstrap} within {timeout_s:g} s")
        time.sleep(_POLL_S)
