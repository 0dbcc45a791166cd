"""Records of `state` about backfills: `backfill/<job>`, one per job that has (or had) one.

It says which ranges of the job's occurrences backfills have dealt with, and how far the one under way has come.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from noontide.core.ids import manual_run_id, run_id
from noontide.core.instants import format_basic
from noontide.records import state


class Span(NamedTuple):
    """Occurrences with from_ms <= due < to_ms, ms since the epoch."""

    from_ms: int
    to_ms: int


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backfill under way.

    request: offset of its request, with what tells it from the same one elsewhere (see `core.ids`).
    begin, end: its range; at: occurrences before this are dealt with; left: runs still to be made; ms.
    at_once: its runs do not wait for each other. reprocess: every occurrence anew, under another run id.
    passed: occurrences that are skipped, since they have been decided before.
    """

    request: tuple[int, str]
    begin: int
    end: int
    at: int
    left: int
    at_once: bool = False
    reprocess: bool = False
    passed: tuple[Span, ...] = ()

    def run_id(self, job_id: str, due_ms: int, generation: int) -> str:
        """Id of its run of an occurrence."""
        if not self.reprocess:
            return run_id(job_id, due_ms, generation)
        offset, source = self.request
        due = format_basic(due_ms).lower().replace(".", "-")
        return manual_run_id(job_id, offset, f"{source}-{due}" if source else due)


class Backfills(msgspec.Struct, frozen=True, omit_defaults=True):
    """The backfills of a job. done: ranges dealt with, in order, apart from each other; now: the one under way."""

    done: tuple[Span, ...] = ()
    now: Progress | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Backfills).decode


def merged(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """The same occurrences in as few ranges as possible, in order; empty ranges go."""
    found: list[Span] = []
    for span in sorted(each for each in spans if each.from_ms < each.to_ms):
        if found and span.from_ms <= found[-1].to_ms:
            found[-1] = Span(found[-1].from_ms, max(found[-1].to_ms, span.to_ms))
        else:
            found.append(span)
    return tuple(found)


def backfill_key(job_id: str) -> bytes:
    """`backfill/<job>`."""
    return state.BACKFILL + job_id.encode()


def encode_backfills(backfills: Backfills) -> bytes:
    """JSON of the backfills of a job."""
    return _encode(backfills)


def decode_backfills(key: bytes, value: bytes) -> tuple[str, Backfills]:
    """The job, and its backfills."""
    return key[len(state.BACKFILL) :].decode(), _decode(value)
