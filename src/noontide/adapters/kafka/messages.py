"""What librdkafka hands out, as the records of the port."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import TYPE_CHECKING, Final

from noontide.ports.record_log import Headers, Incoming

if TYPE_CHECKING:
    from confluent_kafka import Message


UNREADABLE: Final[Headers] = (("kind", b"\xff"),)
"""Stands for headers that the client cannot decode (a name that is not UTF-8): no request reads it as a kind."""


_read_headers = methodcaller("headers")
_incoming: Callable[..., Incoming] = tuple.__new__  # half the cost of the constructor


def incoming(message: Message) -> Incoming:
    """Convert a message without error; empty keys and values stay empty, and null ones None."""
    at, found = (message.topic(), message.partition(), message.offset()), (message.key(), message.value())
    return _incoming(Incoming, (*at, message.timestamp()[1], *found, _headers(message)))


def _headers(message: Message) -> Headers:
    try:  # asked once per message: after a failure the client answers with a broken list
        return _read_headers(message) or ()
    except (SystemError, UnicodeDecodeError):
        return UNREADABLE
