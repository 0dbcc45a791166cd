"""Rows of the index: how a partition's facts are laid out as ordered bytes.

    key   = partition (1 byte) | kind (1 byte) | rest
    kind    rest                                      value
    d due   minute (u32) | ms in minute (u16) | job   DueRow: purpose, nominal time, counters
    j job   job id                                    JobRow: what a dispatch needs, then the accepted document
    c cursor job id                                   the `cursor/<job id>` record's value
    l live  run id                                    the `leases` record's value
    x claimed run id                                  the JobRow a live run was claimed with
    v forget  time (u64) | record key                 when a record of `state` is forgotten; the verdict itself
    g guard   rest of the record's key                the `guard/...` record's value
    z dead    run id                                  the `dead/<run id>` record's value
    n note    record key                              the value of a record of `state` that is kept in memory as a whole
    m meta  name                                      offsets, positions, format

Everything here can be rebuilt from `jobs`, `state` and `leases`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from noontide.core.cursor import Cursor, JobState

FORMAT_ID = "rows-4"
"""Changes whenever the layout does: an index of another format is wiped and rebuilt."""

MINUTE_MS = 60_000
MAX_START_MS = (2**32 - 1) * MINUTE_MS

_DUE_KEY = struct.Struct(">BcIH")
_DUE_VALUE = struct.Struct(">BqHIq")
_DUE_FORM, _DUE_COUNTS = struct.Struct(">BqH"), struct.Struct(">Iq")  # its two parts
DUE_KEY_FORM_BYTES, DUE_FORM_BYTES = _DUE_KEY.size, _DUE_FORM.size
"""What jobs due at one time share: the first bytes of the key, and of the value, of their due rows."""
_FORGET_KEY = struct.Struct(">BcQ")
_DUE, _JOB, _CURSOR, _LIVE, _CLAIMED, _FORGET, _META, _DEAD = (b"d", b"j", b"c", b"l", b"x", b"v", b"m", b"z")
_GUARD, NOTE = b"g", b"n"
_PREFIXED = (_JOB, _CURSOR, _LIVE, _CLAIMED, _META, _DEAD, _GUARD, NOTE)
_PREFIXES = {kind: [bytes([p]) + kind for p in range(256)] for kind in _PREFIXED}


class Purpose(IntEnum):
    """Why a job is in the due index."""

    FIRE = 0
    """Claim the occurrence."""
    REMOVE = 1
    """Remove a completed job."""
    FORGET = 2
    """Drop the marker of a deleted job."""


_PURPOSES = {
    JobState.ACTIVE: int(Purpose.FIRE),
    JobState.COMPLETED: int(Purpose.REMOVE),
    JobState.DELETED: int(Purpose.FORGET),
}


class DueRow(NamedTuple):
    """What the due index knows of a job: enough to move its cursor without reading it.

    due_ms: nominal time; accepted_ms: append time of the definition in force; see `core.cursor.Cursor`.
    """

    purpose: int
    due_ms: int
    generation: int
    runs: int
    accepted_ms: int


_new_due_row = tuple.__new__


def due_key(partition: int, start_ms: int, job_id: bytes) -> bytes:
    """Key of a due row; times before 1970 sort as 1970, so that they are due at once."""
    minute, ms = divmod(min(max(start_ms, 0), MAX_START_MS), MINUTE_MS)
    return _DUE_KEY.pack(partition, _DUE, minute, ms) + job_id


def due_key_parts(key: bytes) -> tuple[int, bytes]:
    """(start_ms, job id) of a due key."""
    _, _, minute, ms = _DUE_KEY.unpack_from(key)
    return minute * MINUTE_MS + ms, key[8:]


def due_row_of(partition: int, job_id: bytes, cursor: Cursor) -> tuple[bytes, bytes] | None:
    """The due row that follows from a cursor, or None when nothing is to happen by itself."""
    form = due_row_form(partition, cursor)
    if form is None:
        return None
    return form[0] + job_id, form[1] + encode_due_counts(cursor.runs, cursor.accepted_ms)


def due_row_form(partition: int, cursor: Cursor) -> tuple[bytes, bytes] | None:
    """As `due_row_of`, without that in which jobs of one schedule differ: the id, and what `encode_due_counts` adds."""
    if cursor.start_ms is None:
        return None
    purpose = _PURPOSES.get(cursor.state)
    if purpose is None:
        return None
    due_ms = cursor.start_ms if cursor.due_ms is None else cursor.due_ms
    return due_key(partition, cursor.start_ms, b""), _DUE_FORM.pack(purpose, due_ms, cursor.generation)


encode_due_counts = _DUE_COUNTS.pack
"""(runs, accepted_ms) as the end of a due row's value."""
decode_due_counts = struct.Struct(f">{_DUE_FORM.size}xIq").unpack
"""(runs, accepted_ms) of a due row's value."""


def decode_due_row(value: bytes) -> DueRow:
    """Inverse of the value of `due_row_of`."""
    return _new_due_row(DueRow, _DUE_VALUE.unpack(value))


def due_range(partition: int) -> tuple[bytes, bytes]:
    """[start, stop) of all due rows of a partition."""
    return bytes([partition]) + _DUE, bytes([partition]) + b"e"


def job_key(partition: int, job_id: bytes) -> bytes:
    """Key of the job's row."""
    return _PREFIXES[_JOB][partition] + job_id


def cursor_key(partition: int, job_id: bytes) -> bytes:
    """Key of the cursor's row."""
    return _PREFIXES[_CURSOR][partition] + job_id


def live_key(partition: int, run_id: bytes) -> bytes:
    """Key of a live run's row."""
    return _PREFIXES[_LIVE][partition] + run_id


def claimed_key(partition: int, run_id: bytes) -> bytes:
    """Key of the definition that a live run was claimed with."""
    return _PREFIXES[_CLAIMED][partition] + run_id


def meta_key(partition: int, name: bytes) -> bytes:
    """Key of a named fact about the partition's rows."""
    return _PREFIXES[_META][partition] + name


def dead_key(partition: int, run_id: bytes) -> bytes:
    """Key of a dead run that can be redriven."""
    return _PREFIXES[_DEAD][partition] + run_id


def guard_key(partition: int, rest: bytes) -> bytes:
    """Key of what an idempotency key was used for; `rest` is the record's key without its prefix."""
    return _PREFIXES[_GUARD][partition] + rest


def note_key(partition: int, record_key: bytes) -> bytes:
    """Key of a fact that is kept in memory as a whole."""
    return _PREFIXES[NOTE][partition] + record_key


def forget_key(partition: int, at_ms: int, record_key: bytes) -> bytes:
    """Key of the reminder that a record of `state` is to be forgotten at a time."""
    return _FORGET_KEY.pack(partition, _FORGET, at_ms) + record_key


def forgotten_record_key(key: bytes) -> bytes:
    """The `state` record key inside a reminder's key."""
    return key[10:]


TZDATA = b"__tzdata"
TOPIC_IDS = b"topic-ids"
COMPLETE = b"complete"
"""Name of the row that says until when, in broker time, the rows are known to reflect everything that was committed."""
JOBS, STATE, LEASES = (b"offset/jobs", b"offset/state", b"offset/leases")
_OFFSET = struct.Struct(">qq")


def offset_key(partition: int, source: bytes) -> bytes:
    """Key of the offset up to which rows reflect a source topic: JOBS, STATE or LEASES."""
    return meta_key(partition, source)


def encode_complete(at_ms: int) -> bytes:
    """Value of the COMPLETE row."""
    return b"%d" % at_ms


def decode_complete(value: bytes | None) -> int:
    """Inverse of `encode_complete`; 0 when nothing is known."""
    return 0 if value is None else int(value)


def encode_offset(next_offset: int, appended_ms: int) -> bytes:
    """Value of an offset row: the next offset to read, and the append time of the last record reflected."""
    return _OFFSET.pack(next_offset, appended_ms)


def decode_offset(value: bytes) -> tuple[int, int]:
    """(next offset, append time of the last record reflected)."""
    next_offset, appended_ms = _OFFSET.unpack(value)
    return next_offset, appended_ms


def kind_range(partition: int, kind: bytes) -> tuple[bytes, bytes]:
    """[start, stop) of all rows of one kind."""
    return bytes([partition]) + kind, bytes([partition, kind[0] + 1])
