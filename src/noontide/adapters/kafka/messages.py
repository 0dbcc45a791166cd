"""What librdkafka hands out, as the records of the port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noontide.ports.record_log import Incoming

if TYPE_CHECKING:
    from confluent_kafka import Message


def incoming(message: Message) -> Incoming:
    """Convert a message without error; empty keys and values stay empty, and null ones None."""
    return Incoming(
        message.topic(),  # type: ignore[arg-type] # never None without an error, like the next two
        message.partition(),  # type: ignore[arg-type]
        message.offset(),  # type: ignore[arg-type]
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or (),  # type: ignore[arg-type]
    )
