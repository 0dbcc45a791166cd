"""Records of the `rejected` topic: requests that could not be accepted, with where they were and why."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from noontide.core.errors import Problem

EXCERPT_MAX_BYTES = 1024
"""Most of a refused value that is kept, and most of a refused key."""


class Origin(NamedTuple):
    """Where a request was first written. `text` is how headers and verdicts name it: topic/partition/offset."""

    topic: str
    partition: int
    offset: int

    @property
    def text(self) -> str:
        """`requests.public/12/345` (topic without the installation's prefix)."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def name(self) -> str:
        """How positions name the input: the topic, with the partition where an owner reads several of it."""
        return f"{self.topic}/{self.partition}" if self.topic == "signals" else self.topic

    @property
    def etag(self) -> str:
        """The version of a job that this request defined: unique, short, without slashes."""
        return f"{self.topic.removeprefix('requests.')}-{self.partition}-{self.offset}"


def parse_origin(text: str) -> Origin:
    """Inverse of `Origin.text`. Raises ValueError."""
    topic, partition, offset = text.rsplit("/", 2)
    return Origin(topic, int(partition), int(offset))


def encode_rejected(origin: Origin, *, problems: Sequence[Problem], value: bytes | None, at_ms: int) -> bytes:
    """JSON of a rejection; the original value is kept as a base64 excerpt of at most `EXCERPT_MAX_BYTES`."""
    return orjson.dumps(
        {
            "origin": {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset},
            "reason": "; ".join(map(str, problems)),
            "problems": [{"pointer": problem.pointer, "message": problem.message} for problem in problems],
            "at": at_ms,
            "size": 0 if value is None else len(value),
            "excerpt": b64encode((value or b"")[:EXCERPT_MAX_BYTES]).decode(),
        }
    )
