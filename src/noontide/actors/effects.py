"""What a cycle wants to happen: records for one transaction, rows for one write batch, and what to remember afterwards.

Each kind of fact has one method here, which keeps the record, the row and the memory of it together. Nothing takes
effect before the commit; until then the rows written so far are what the rest of the cycle reads (`read`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from noontide.actors.request_input import Input
from noontide.actors.ties import TieChanges
from noontide.actors.world import World
from noontide.core.cursor import Cursor
from noontide.core.errors import Problem
from noontide.core.exact_quota import Insisting
from noontide.core.pace import Pace
from noontide.core.run import Run, RunState
from noontide.core.tracing import TraceSpan
from noontide.ports.due_index import IndexBatch
from noontide.ports.record_log import Headers, Record, TopicPartition, quick_record
from noontide.records import rows, state
from noontide.records.job_row import JobRow
from noontide.records.leases import encode_lease
from noontide.records.rejected import EXCERPT_MAX_BYTES, Origin, encode_rejected
from noontide.records.signals import Signal, encode_signal
from noontide.records.topics import Layout
from noontide.records.worker_inbox import Answer

Key = bytes
Opened = tuple[int, Key, bytes, Run]
"""A run to remember as live: (partition, run id, its lease, the run)."""
Closed = tuple[int, Run, Key, bytes, bytes]
"""A run that is over: (partition, the run, its id, its line of history, its result)."""


class Hold(NamedTuple):
    """What the lease keeper needs to know of a published run; see `records.job_row.JobRow`.

    follows: the job's next occurrence counts from the end of this run.
    """

    partition: int
    queue_ms: int
    lease_ms: int
    timeout_ms: int
    once: int
    follows: bool


class Decided(NamedTuple):
    """A verdict that somebody asked for. verdict: the record's value; cursor: where the job stands now."""

    origin: Origin
    verdict: bytes
    cursor: bytes | None


class Stand(NamedTuple):
    """What a limiter has given to one slot for one tenant, and how many more are wanted."""

    given: int = 0
    wanted: int = 0


class Send(NamedTuple):
    """A record for a topic that is not registered, to be sent after the commit."""

    partition: int
    run_id: str
    topic: str
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Full topic names and the owner's partitions of them, computed once per slot."""

    layout: Layout
    slot: int
    state: TopicPartition
    leases: TopicPartition
    executions: TopicPartition
    dead_letters: TopicPartition
    results: TopicPartition
    audit: TopicPartition
    jobs: str
    signals: str
    rejected: str
    _lanes: dict[str, TopicPartition] = field(default_factory=dict, repr=False)

    def runs(self, lane: str) -> TopicPartition:
        """Where runs of a lane are offered."""
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = TopicPartition(self.layout.name("runs", lane=lane), self.slot)
        return found

    @classmethod
    def of(cls, layout: Layout, slot: int) -> Names:
        """The names for one slot."""
        return cls(
            layout=layout,
            slot=slot,
            state=TopicPartition(layout.name("state"), slot),
            leases=TopicPartition(layout.name("leases"), slot),
            executions=TopicPartition(layout.name("executions"), slot),
            dead_letters=TopicPartition(layout.name("dead-letters"), slot),
            results=TopicPartition(layout.name("results"), slot),
            audit=TopicPartition(layout.name("audit"), slot),
            jobs=layout.name("jobs"),
            signals=layout.name("signals"),
            rejected=layout.name("rejected"),
        )


class Effects:
    """Everything that one cycle of a slot decided."""

    def __init__(self, names: Names, fetched: Mapping[Key, bytes | None]) -> None:
        self.names = names
        self.outputs: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        self.index = IndexBatch()
        self.due_changes: defaultdict[int, list[tuple[Key, bytes | None]]] = defaultdict(list)
        self.run_changes: list[tuple[int, str, Run | None]] = []
        self.sends: list[Send] = []
        self.live_changes: dict[str, dict[str, Run | None]] = {}
        self.used: Counter[str] = Counter()
        self.published: Counter[str] = Counter()
        self.holds: dict[str, Hold] = {}
        self.answers: dict[str, tuple[int, Answer]] = {}
        self.decided: list[Decided] = []
        self.counts: Counter[str] = Counter()
        self.ties = TieChanges()
        self.paces: dict[str, Pace | None] = {}
        self.ran: list[tuple[str, int]] = []
        """Lane and duration, ms, of last attempts that ended."""
        self.spans: list[TraceSpan] = []
        """Of runs that follow from a request with a trace."""
        self.exact: dict[tuple[str, str], Insisting | None] = {}
        self.held: dict[tuple[str, str], Input | None] = {}
        self.limited = False
        self.permits: dict[tuple[str, str], tuple[int, int]] = {}
        self.limiters: dict[str, dict[tuple[str, int], Stand]] = {}
        self.rates: dict[str, int] = {}
        self.shares: dict[str, dict[str, int]] = {}
        self.wants_fresh_config = False
        self.fetched: Callable[[Key], bytes | None] = fetched.__getitem__
        """A row as it was before this cycle."""
        self._fetched = fetched
        self._first = names.layout.partitions_of(names.slot)[0]
        self._puts = self.index.puts

    def read(self, key: Key) -> bytes | None:
        """A row as this cycle sees it: what it wrote, else what was fetched before it began."""
        if key in self._puts:
            return self._puts[key]
        return self._fetched[key]

    def find(self, key: Key) -> bytes | None:
        """As `read`, for a row that may not have been asked for."""
        return self._puts[key] if key in self._puts else self._fetched.get(key)

    # --- jobs and cursors

    def put_job(self, partition: int, job_id: bytes, *, row: bytes, record: Record) -> None:
        """A definition is accepted."""
        self.outputs[TopicPartition(self.names.jobs, partition)].append(record)
        self._puts[rows.job_key(partition, job_id)] = row

    def delete_job(self, partition: int, job_id: bytes, *, headers: Headers) -> None:
        """A definition is gone (its cursor may stay as a marker)."""
        self.outputs[TopicPartition(self.names.jobs, partition)].append(Record(job_id, None, headers))
        self.ties.gone.append(job_id.decode())
        self._puts[rows.job_key(partition, job_id)] = None

    def put_cursor(self, partition: int, job_id: bytes, cursor: Cursor) -> None:
        """A job moves on. The due row of the cursor before it must have been taken or unscheduled."""
        value, due = state.encode_cursor(cursor), rows.due_row_of(partition, job_id, cursor)
        self.outputs[self.names.state].append(quick_record(Record, (state.CURSOR + job_id, value, ())))
        self._puts[rows.cursor_key(partition, job_id)] = value
        if due is not None:
            self._puts[due[0]] = due[1]
            self.due_changes[partition].append(due)

    def drop_cursor(self, partition: int, job_id: bytes) -> None:
        """Nothing is known of the id any more."""
        self.outputs[self.names.state].append(Record(state.CURSOR + job_id, None))
        self._puts[rows.cursor_key(partition, job_id)] = None

    def unschedule(self, partition: int, job_id: bytes, cursor: Cursor | None) -> None:
        """The due row that follows from this cursor is void."""
        due = None if cursor is None else rows.due_row_of(partition, job_id, cursor)
        if due is not None:
            self._puts[due[0]] = None
            self.due_changes[partition].append((due[0], None))

    @property
    def has_changed_rows(self) -> bool:
        """Whether this cycle wrote any row."""
        return bool(self._puts)

    def is_changed(self, key: Key) -> bool:
        """Whether this cycle wrote or deleted the row. A due row that it had taken is void then, or comes up again."""
        return key in self._puts

    # --- runs

    def open_run(self, partition: int, run: Run) -> None:
        """A run becomes live, or its live state changes."""
        run_id, lease = run.run_id.encode(), encode_lease(run)
        self.outputs[self.names.leases].append(Record(run_id, lease))
        self._puts[rows.live_key(partition, run_id)] = lease
        self.run_changes.append((partition, run.run_id, run))
        self.live_changes.setdefault(run.job_id, {})[run.run_id] = run

    def open_runs(self, opened: Sequence[Opened]) -> None:
        """As `open_run`, for many whose leases are in words already."""
        if not opened:
            return
        leases, puts, changes = self.outputs[self.names.leases].append, self._puts, self.run_changes.append
        live_changes, live_key = self.live_changes, rows.live_key
        for partition, key, lease, run in opened:
            leases(quick_record(Record, (key, lease, ())))
            puts[live_key(partition, key)] = lease
            run_id, job_id = run[:2]
            changes((partition, run_id, run))
            live_changes.setdefault(job_id, {})[run_id] = run

    def keep_definition(self, partition: int, run: Run, row: JobRow, row_bytes: bytes) -> None:
        """The job moves on: keep what a live run was claimed with. Until then that is the job's own row."""
        run_id = run.run_id.encode()
        headers = [("etag", row.etag.encode()), ("created", b"%d" % row.created_ms)]
        self.outputs[self.names.state].append(Record(state.RUN + run_id, row.document, headers))
        self._puts[rows.claimed_key(partition, run_id)] = row_bytes
        self.open_run(partition, run._replace(kept=True))

    @staticmethod
    def row_key(partition: int, run: Run) -> Key:
        """Where the JobRow is that a run was claimed with: the job's own row until the job moves on."""
        if run.kept:
            return rows.claimed_key(partition, run.run_id.encode())
        return rows.job_key(partition, run.job_id.encode())

    def row_of(self, partition: int, run: Run) -> bytes:
        """The JobRow that a run was claimed with, also one closed by this cycle. Raises LookupError without one."""
        key = self.row_key(partition, self.current(run) or run)
        row = self._puts.get(key) or self._fetched.get(key)
        if not row:
            raise LookupError(f"run {run.run_id} is live without the definition it was claimed with")
        return row

    def publish(self, partition: int, run: Run, hold: Hold, invitation: Record, lane: TopicPartition) -> None:
        """A run is offered to the workers of its lane."""
        self.outputs[lane].append(invitation)
        self.holds[run.run_id] = hold
        self.open_run(partition, run)

    def answer(self, worker: str, inbox: int) -> Answer:
        """What is said to a worker after the commit; add to it."""
        if worker not in self.answers:
            self.answers[worker] = (inbox, Answer(worker=worker, slot=self.names.slot))
        return self.answers[worker][1]

    def close_run(self, partition: int, run: Run, *, keep: bool = False) -> None:
        """A live run is over. keep: what it was claimed with stays."""
        run_id = run.run_id.encode()
        self.outputs[self.names.leases].append(Record(run_id, None))
        self._puts[rows.live_key(partition, run_id)] = None
        if (self.current(run) or run).kept and not keep:
            self.outputs[self.names.state].append(Record(state.RUN + run_id, None))
            self._puts[rows.claimed_key(partition, run_id)] = None
        self.run_changes.append((partition, run.run_id, None))
        self.live_changes.setdefault(run.job_id, {})[run.run_id] = None

    def close_runs(self, closed: Sequence[Closed], end: RunState) -> None:
        """As `close_run` with history and result, for many of whom nothing is kept."""
        if not closed:
            return
        outputs, names, puts, changes = self.outputs, self.names, self._puts, self.run_changes.append
        leases, history, results = (outputs[each].append for each in (names.leases, names.executions, names.results))
        live_changes, live_key = self.live_changes, rows.live_key
        for partition, run, key, line, result in closed:
            run_id, job_id = run[:2]
            history(quick_record(Record, (key, line, ())))
            results(quick_record(Record, (job_id.encode(), result, ())))
            leases(quick_record(Record, (key, None, ())))
            puts[live_key(partition, key)] = None
            changes((partition, run_id, None))
            live_changes.setdefault(job_id, {})[run_id] = None
        self.counts[end] += len(closed)

    def current(self, run: Run) -> Run | None:
        """A live run as this cycle sees it; None when the cycle closed it."""
        return self.live_changes.get(run.job_id, {}).get(run.run_id, run)

    def record(self, run_id: bytes, execution: bytes) -> None:
        """One line of history."""
        self.outputs[self.names.executions].append(Record(run_id, execution))

    # --- answers to requests

    def reject(
        self, origin: Origin, *, key: bytes | None, value: bytes | None, problems: Sequence[Problem], at_ms: int
    ) -> None:
        """A request is refused; what it asked for does not happen."""
        names = self.names
        partition = origin.partition % names.layout.topic_partitions("rejected")
        refusal = encode_rejected(origin, problems=problems, value=value, at_ms=at_ms)
        self.outputs[TopicPartition(names.rejected, partition)].append(Record(key and key[:EXCERPT_MAX_BYTES], refusal))
        self.counts["rejected"] += 1

    def put_verdict(self, decided: Decided, *, forget_ms: int) -> None:
        """Keep the answer to a request whose sender asked for one, for a while."""
        key = state.verdict_record_key(decided.origin.text)
        self.outputs[self.names.state].append(Record(key, decided.verdict))
        self._forget_at(forget_ms, key, decided.verdict)
        self.decided.append(decided)

    def put_guard(self, partition: int, record_key: Key, value: bytes, *, forget_ms: int) -> None:
        """Remember what an idempotency key was used for, at least until then and as long as the job lives."""
        self.outputs[self.names.state].append(Record(record_key, value))
        self._puts[rows.guard_key(partition, record_key[len(state.GUARD) :])] = value
        self._forget_at(forget_ms, record_key)

    def _forget_at(self, at_ms: int, record_key: Key, value: bytes = b"") -> None:
        self._puts[rows.forget_key(self._first, at_ms, record_key)] = value

    def forget(self, row_key: Key, *, again_ms: int) -> None:
        """The time of a verdict, a guard or a dead run is over. again_ms: when a guard of a living job is looked at."""
        key = rows.forgotten_record_key(row_key)
        self._puts[row_key] = None
        if key.startswith(state.DEAD):
            self._drop_dead(key[len(state.DEAD) :])
        elif key.startswith(state.GUARD) and self._lives(state.guarded_job_id(key)):
            self._forget_at(again_ms, key)
        else:
            self.outputs[self.names.state].append(Record(key, None))
            if key.startswith(state.GUARD):
                home = self.names.layout.partition_of(state.guarded_job_id(key))
                self._puts[rows.guard_key(home, key[len(state.GUARD) :])] = None

    def _lives(self, job_id: Key) -> bool:
        return self._fetched.get(rows.job_key(self.names.layout.partition_of(job_id), job_id)) is not None

    def bury(self, partition: int, run: Run, *, forget_ms: int) -> None:
        """A run is dead: what it would have done is kept for a while, so that it can be redriven."""
        run_id, lease = run.run_id.encode(), encode_lease(run._replace(kept=True))
        self.outputs[self.names.state].append(Record(state.DEAD + run_id, lease))
        self._puts[rows.dead_key(partition, run_id)] = lease
        self._forget_at(forget_ms, state.DEAD + run_id)

    def revive(self, partition: int, run: Run) -> None:
        """A dead run is live again, with the definition that was kept for it."""
        run_id = run.run_id.encode()
        self.outputs[self.names.state].append(Record(state.DEAD + run_id, None))
        self._puts[rows.dead_key(partition, run_id)] = None
        self.open_run(partition, run)

    def _drop_dead(self, run_id: Key) -> None:
        """A dead run that nobody redrove; one that was redriven has lost its record already, and keeps the rest."""
        partition = self.names.layout.partition_of(run_id.rpartition(b":")[0])
        if self._fetched.get(rows.dead_key(partition, run_id)) is None:
            return
        for kind in (state.DEAD, state.RUN):
            self.outputs[self.names.state].append(Record(kind + run_id, None))
        self._puts[rows.dead_key(partition, run_id)] = None
        self._puts[rows.claimed_key(partition, run_id)] = None

    def put_tzdata(self, version: str) -> None:
        """The slot's cursors follow this release of the time zone database."""
        self.outputs[self.names.state].append(Record(state.TZDATA, version.encode()))
        self._puts[rows.meta_key(self._first, rows.TZDATA)] = version.encode()

    def put_note(self, key: Key, value: bytes | None) -> None:
        """A fact that the slot keeps in memory as a whole (`records.state.NOTES`); None = it is gone."""
        self.outputs[self.names.state].append(Record(key, value))
        self._puts[rows.note_key(self._first, key)] = value

    def signal(self, slot: int, signal: Signal) -> None:
        """Tell another slot (or this one) something, exactly once."""
        partition = self.names.layout.signals_partition(slot, self.names.slot)
        self.outputs[TopicPartition(self.names.signals, partition)].append(encode_signal(signal))

    def put_position(self, partition: int, name: int | str, position: state.Position) -> None:
        """Inputs up to here are part of this transaction."""
        value = state.encode_position(position)
        self.outputs[self.names.state].append(Record(state.position_record_key(name), value))
        self._puts[rows.meta_key(partition, state.position_record_key(name))] = value


class Scene(NamedTuple):
    """What a rule acts in: the world it may look at, and the effects it may add to."""

    world: World
    effects: Effects
