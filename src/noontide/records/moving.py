"""Which record goes where when the number of slots changes: everything owners keep for themselves follows its job.

What is fixed to a slot and not to a job is worked out anew: positions of mailboxes begin with new topics; permits
follow from the live runs, which are the only ones that use them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from noontide.core.errors import NoontideError
from noontide.core.run import Run, RunState
from noontide.ports.record_log import Incoming, Record
from noontide.records import signals, state
from noontide.records.exact_starts import exact_key_parts, quota_name
from noontide.records.topics import Layout
from noontide.records.worker_events import Frame, decode_frame, encode_frame

_OF_A_JOB = (state.CURSOR, state.AFTER, state.STREAK, state.BACKFILL)
_OF_A_JOB_FIRST = (state.EDGE, state.JOIN, state.WAVE, state.HELD)
_OF_A_RUN = (state.RUN, state.DEAD)
_ANEW = (state.LIMITER, state.PERMITS)
_SLOT_IN_INVITATION = re.compile(rb'(?<="slot":)\d+')
_MAILBOX = b"slot-"


class Unmovable(NoontideError):
    """A record that this version does not know where to put; nothing may be changed then."""


class Moved(NamedTuple):
    """A record and the partition of its topic (short name) that it goes to."""

    topic: str
    partition: int
    record: Record


class Moving:
    """From one layout to another with the same partitions and other slots."""

    def __init__(self, old: Layout, new: Layout) -> None:
        assert old.partitions == new.partitions, "jobs stay where they are"
        self.old = old
        self.new = new
        self.runs: dict[str, Run] = {}
        self.mailboxes: dict[int, Mapping[str, int]] = {}
        self._tzdata: dict[int, bytes | None] = {}

    def slot_of_job(self, job_id: bytes | str) -> int:
        """The slot that has the job from now on."""
        return self.new.slot_of(self.new.partition_of(job_id))

    def _slot_of_run(self, run_id: bytes) -> int:
        return self.slot_of_job(run_id.rpartition(b":")[0])

    # --- state

    def state(self, record: Incoming) -> Moved | None:
        """Where a record of `state` goes; None for what is worked out anew. Raises Unmovable."""
        key = record.key or b""
        if key == state.TZDATA:
            self._tzdata[record.partition] = record.value
            return None
        if key.startswith(state.POSITION + _MAILBOX):
            if record.value is not None:
                self.mailboxes[record.partition] = state.decode_position(record.value).inputs
            return None
        if key.startswith(_ANEW):
            return None
        return Moved("state", self._slot_of_state(key), _copy(record))

    def _slot_of_state(self, key: bytes) -> int:
        if key.startswith(_OF_A_JOB + _OF_A_JOB_FIRST):
            return self.slot_of_job(key.split(b"/")[1])
        if key.startswith(_OF_A_RUN):
            return self._slot_of_run(key.partition(b"/")[2])
        if key.startswith(state.GUARD):
            return self.slot_of_job(state.guarded_job_id(key))
        if key.startswith(state.EXACT):
            return self.slot_of_job(quota_name(exact_key_parts(key)[0]))
        if key.startswith(state.RATE):
            return self.slot_of_job(key[len(state.RATE) :])
        if key.startswith(state.VERDICT):
            return self.new.slot_of(int(key.split(b"/")[-2]))
        if key.startswith(state.POSITION):
            return self.new.slot_of(int(key[len(state.POSITION) :]))
        raise Unmovable(f"this version cannot move the record {key[:80]!r} of state")

    # --- leases

    def lease(self, record: Incoming, run: Run | None) -> Moved:
        """Where a record of `leases` goes; run: what is in it, None for a tombstone."""
        key = record.key or b""
        if run is None:
            self.runs.pop(key.decode(), None)
        else:
            self.runs[run.run_id] = run
        return Moved("leases", self._slot_of_run(key), _copy(record))

    def anew(self) -> Iterator[Moved]:
        """What is worked out anew, once `state` and `leases` are read: permits, and the time zone release."""
        used: Counter[tuple[int, str, str]] = Counter()
        waiting: Counter[tuple[int, str, str]] = Counter()
        for run in self.runs.values():
            slot = self.slot_of_job(run.job_id)
            used.update((slot, limiter, run.tenant) for limiter in run.permits)
            if run.awaits is not None:
                waiting[slot, run.awaits, run.tenant] += 1
        for slot, limiter, tenant in sorted(used.keys() | waiting.keys()):
            held, asked = used[slot, limiter, tenant], waiting[slot, limiter, tenant]
            ours = Record(state.permits_record_key(limiter, tenant), state.encode_counts(held=held, asked=asked))
            yield Moved("state", slot, ours)
            key = state.limiter_record_key(limiter, tenant, slot)
            theirs = Record(key, state.encode_counts(given=held, wanted=asked))
            yield Moved("state", self.slot_of_job(limiter), theirs)
        versions = set(self._tzdata.values())
        if len(versions) == 1 and len(self._tzdata) == self.old.slots:  # else the jobs are looked at again
            for slot in range(self.new.slots):
                yield Moved("state", slot, Record(state.TZDATA, next(iter(versions))))

    # --- signals, worker events, invitations: what nobody has read yet

    def signal(self, record: Incoming) -> Moved | None:
        """Where an unread record of `signals` goes; None for permits and for what is no message."""
        message = signals.decode_signal(record.value, record.headers)
        if isinstance(message, signals.Ask | signals.Grant):
            return None
        if message is None and ("kind", b"forward") not in list(record.headers):
            return None
        sender = self.new.slot_of(self.old.partitions_of(record.partition % self.old.slots)[0])
        receiver = self.slot_of_job(record.key or b"")
        return Moved("signals", self.new.signals_partition(receiver, sender), _copy(record))

    def frames(self, record: Incoming) -> Iterator[tuple[int, bytes]]:
        """An unread frame of workers, taken apart by the slots that now have its runs."""
        try:
            frame = decode_frame(record.value or b"")
        except ValueError:
            return
        slots = {
            self._slot_of_run(run_id.encode())
            for run_id in (
                *(claim[0] for claim in frame.claims),
                *(beat[0] for beat in frame.beats),
                *(end.run_id for end in frame.ends),
                *(step[0] for step in frame.progress),
            )
        }
        for slot in sorted(slots):
            yield slot, encode_frame(self._part(frame, slot))

    def _part(self, frame: Frame, slot: int) -> Frame:
        def is_ours(run_id: str) -> bool:
            return self._slot_of_run(run_id.encode()) == slot

        return Frame(
            worker=frame.worker,
            inbox=frame.inbox,
            claims=[each for each in frame.claims if is_ours(each[0])],
            beats=[each for each in frame.beats if is_ours(each[0])],
            ends=[each for each in frame.ends if is_ours(each.run_id)],
            progress=[each for each in frame.progress if is_ours(each[0])],
        )

    def invitation(self, record: Incoming, run_id: str, attempt: int) -> tuple[int, Record] | None:
        """The slot and the text of an invitation whose run still waits for a worker; None for one that is over."""
        run = self.runs.get(run_id)
        if run is None or run.state is not RunState.QUEUED or run.attempt != attempt:
            return None
        slot = self.slot_of_job(run.job_id)
        value = _SLOT_IN_INVITATION.sub(b"%d" % slot, record.value or b"", count=1)
        return slot, Record(record.key, value, record.headers)


def _copy(record: Incoming) -> Record:
    return Record(record.key, record.value, record.headers)


def history_partitions(layout: Layout, partition: int) -> list[int]:
    """Where records of a job may lie that were written for others to read, before and after changes of the slots."""
    before: Iterable[Layout] = (Layout(partitions=layout.partitions, slots=slots) for slots in layout.former_slots)
    return sorted({layout.slot_of(partition), *(each.slot_of(partition) for each in before)})
