"""Records of `worker-events.<lane>`: what workers say to the owner of a slot. One record is a frame of many events.

The partition is the slot, set explicitly; the key is the worker's id. Frames are read in log order: the first claim of
an attempt wins. A frame that repeats an earlier one changes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from noontide.records.worker_inbox import INBOX_PARTITIONS

WORKER_MAX_CHARS = 200


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """The handler stopped because it was asked to."""
    HANDED_BACK = "handed_back"
    """Not started, or given up at shutdown: costs no attempt."""
    OPEN = "open"
    """The target answered 202 and will complete the run itself; no heartbeats until then."""


NO_RESULT = msgspec.Raw(b"")
"""No result. Always this object: another empty text would be written as it is, and spoil the frame."""


class End(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The end of an attempt. token: that of its grant; anything else is counted and ignored.

    permanent: must not be retried. error: type and message, at most 2,000 characters. retry_after_ms: wait the target
    asked for. status: HTTP status. result: JSON text, at most 64 KiB; truncated: it was cut to fit.
    duration_ms: by the worker's monotonic clock.
    """

    run_id: str
    token: int
    outcome: Outcome
    permanent: bool = False
    error: str | None = None
    retry_after_ms: int | None = None
    status: int | None = None
    result: msgspec.Raw = NO_RESULT
    truncated: bool = False
    duration_ms: int = 0


class Frame(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one worker says to one slot at once.

    worker: id of this incarnation of the process, present unless it is a probe; inbox: partition of `worker-inbox` to
    answer on.
    claims: (run id, attempt) the worker would start. beats: (run id, token) it holds: each extends its lease.
    progress: (run id, token, fraction 0..1 or null, note). probe: set by an owner that moves time on, alone.
    """

    worker: Annotated[str, msgspec.Meta(max_length=WORKER_MAX_CHARS)] = ""
    inbox: Annotated[int, msgspec.Meta(ge=0, lt=INBOX_PARTITIONS)] = 0
    claims: list[tuple[str, int]] = []
    beats: list[tuple[str, int]] = []
    ends: list[End] = []
    progress: list[tuple[str, int, float | None, str]] = []
    probe: str | None = None


RESULT_MAX_BYTES = 64 * 1024
ERROR_MAX_CHARS = 2_000
encode_frame = msgspec.json.Encoder().encode
decode_frame = msgspec.json.Decoder(Frame).decode
"""Inverse of `encode_frame`; raises msgspec.DecodeError (a ValueError) for what is no frame."""
