"""Looks on after each step: what the log shows to everybody must keep the promises at every moment.

Reads committed records as they become visible, and decodes them by itself. The first thing that is not as it should be
is a `Violation`, which ends the simulation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import orjson

from noontide.actors.effects import Names
from noontide.actors.restore import Restorer
from noontide.actors.settings import SchedulerSettings
from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.memory.log import MemoryLog
from noontide.adapters.memory.readers import MemoryReplay
from noontide.ports.record_log import Incoming, TopicPartition
from noontide.records import rows
from noontide.records.runs import Invitation
from noontide.records.topics import Layout
from noontide.testing.simulation.hosts import Witnesses
from noontide.testing.simulation.loop import Process
from noontide.testing.simulation.network import Site

COMPARED: Final = (b"j", b"c", b"d", b"l", b"x", b"z")
"""Kinds of rows that the log alone decides."""
CLOSED: Final = frozenset({"succeeded", "dead", "cancelled"})
COMPARE_EVERY: Final = 25
STEP_MS: Final = 3_000
"""A time in which nobody was heard counts as so much silence at most: the broker or the owner may have been away."""
ESTIMATE_MS: Final = 500
"""By how much an owner may believe that it is earlier than it is."""
NEVER_MS: Final = 1 << 62
Json = dict[str, Any]


class Violation(AssertionError):
    """A promise is broken. checker: which one."""

    def __init__(self, checker: str, what: str) -> None:
        super().__init__(f"{checker}: {what}")
        self.checker = checker
        self.what = what


class Grant(NamedTuple):
    """What a `leases` record of a running run says. worker: None = the target completes it by itself."""

    token: int
    attempt: int
    worker: str | None


@dataclass(slots=True)
class Life:
    """What was seen of one run."""

    live: bool = False
    state: str = ""
    closed: list[str] = field(default_factory=list)
    token: int = 0
    grants: dict[int, Grant] = field(default_factory=dict)
    starts: dict[int, str] = field(default_factory=dict)
    heard_ms: list[int] = field(default_factory=list)
    granted_step: int = 0
    lease_ms: int = 0
    results: Counter[int] = field(default_factory=Counter)
    redrives: int = 0
    delivered: Counter[str] = field(default_factory=Counter)
    permits: tuple[str, ...] = ()
    waits: bool = False  # it was skipped, and runs after all once its upstream succeeds


@dataclass(slots=True)
class Frames:
    """When frames were appended to one partition of `worker-events`, and how much lease time had passed by then."""

    appended_ms: list[int] = field(default_factory=list)
    passed_ms: list[int] = field(default_factory=list)

    def add(self, at_ms: int) -> None:
        """One more; the clock of a broker may jump, and never goes back."""
        gap_ms = at_ms - self.appended_ms[-1] if self.appended_ms else 0
        self.passed_ms.append((self.passed_ms[-1] if self.passed_ms else 0) + min(gap_ms, STEP_MS))
        self.appended_ms.append(at_ms)

    def passed_by(self, at_ms: int) -> int:
        """Lease time that had passed with the last frame until then."""
        place = bisect_right(self.appended_ms, at_ms)
        return self.passed_ms[place - 1] if place else 0


class Witness(Witnesses):
    """See the module. seen: every record that became visible, by topic without the prefix, in order per partition."""

    def __init__(self, site: Site, log: MemoryLog, layout: Layout, settings: SchedulerSettings) -> None:
        self.seen: dict[str, list[Incoming]] = defaultdict(list)
        self.lives: dict[str, Life] = defaultdict(Life)
        self.fates: dict[str, str] = {}
        self.once: set[str] = set()
        self.caps: dict[str, int] = {}
        self.permits: Counter[str] = Counter()
        self.violation: Violation | None = None
        self.exact_topics: set[str] = set()
        self._site = site
        self._log = log
        self._layout = layout
        self._settings = settings
        self._owners: dict[int, Process] = {}
        self._positions: dict[bytes, tuple[int, dict[str, int]]] = {}
        self._cursors: dict[bytes, Json] = {}
        self._ends: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._frames: dict[tuple[str, int], Frames] = defaultdict(Frames)
        self._reached: dict[TopicPartition, int] = {}
        self._news: dict[TopicPartition, None] = {}
        self._applied = 0
        self._readers: dict[str, Callable[[Incoming], None]] = {
            "state": self._state,
            "leases": self._lease,
            "executions": self._execution,
            "results": self._result,
            "jobs": self._definition,
            "rejected": self._rejection,
        }
        log.subscribe(self._told)

    def _broken(self, checker: str, what: str) -> Violation:
        """The first violation stays, even if somebody catches it."""
        self.violation = self.violation or Violation(checker, what)
        return self.violation

    def _told(self, partitions: Collection[TopicPartition]) -> None:
        self._news |= dict.fromkeys(partitions)

    def look(self) -> None:
        """Judge what has become visible. Raises Violation."""
        if self.violation is not None:
            raise self.violation
        if not self._news:
            return
        news, self._news = sorted(self._news, key=_rank), {}
        for at in news:
            records, self._reached[at] = self._log.read(at, self._reached.get(at, 0), max_records=1 << 30)
            if records:
                short = at.topic.removeprefix(self._layout.prefix)
                self.seen[short] += records
                reader = self._reader(short, at.topic)
                if reader is not None:
                    for record in records:
                        reader(record)
        for limiter, most in self.caps.items():
            if self.permits[limiter] > most:
                raise self._broken("limits", f"{self.permits[limiter]} runs have a permit of {limiter}, of {most}")

    def _reader(self, short: str, topic: str) -> Callable[[Incoming], None] | None:
        if short in self._readers:
            return self._readers[short]
        if short.startswith("worker-events."):
            return self._frame
        if short.startswith("runs."):
            return self._invitation
        return self._delivery if topic in self.exact_topics else None

    @property
    def layout(self) -> Layout:
        """See `permits_judge.Topics`."""
        return self._layout

    def records(self, topic: str) -> list[Incoming]:
        """See `permits_judge.Topics`."""
        return self.seen[self._layout.short(topic)]

    # --- what processes do

    def opened(self, slot: int, process: Process) -> None:
        """See `Witnesses`."""
        before = self._owners.get(slot)
        if before is not None and before is not process:
            self._site.counts["take_overs"] += 1
            self._site.counts["fences"] += before.alive
        self._owners[slot] = process

    def committed(self, slot: int, process: Process) -> None:
        """See `Witnesses`: only the latest owner's commits may take effect."""
        self._site.counts["commits"] += 1
        owner = self._owners.get(slot)
        if owner is not process:
            raise self._broken(
                "one owner", f"{process.name} committed for slot {slot}, which {owner and owner.name} owns"
            )

    def applied(self, slot: int, process: Process, index: MemoryIndex) -> None:
        """See `Witnesses`: every now and then the live index is compared with what the log alone gives."""
        self._applied += 1
        if self._applied % COMPARE_EVERY == 0 and self._owners.get(slot) is process:
            self.compare(slot, index)

    def compare(self, slot: int, index: MemoryIndex) -> None:
        """Raises Violation when an index is not what the log alone gives."""
        self._site.counts["indexes_compared"] += 1
        rebuilt, names = MemoryIndex(), Names.of(self._layout, slot)
        restorer = Restorer(names, index=rebuilt, replay=MemoryReplay(self._log), settings=self._settings)
        restorer.restore(now_ms=0)
        live, fresh = self._contents(index, slot), self._contents(rebuilt, slot)
        if live != fresh:
            wrong = [key for key in sorted(live.keys() | fresh.keys()) if live.get(key) != fresh.get(key)]
            shown = [(key, live.get(key), fresh.get(key)) for key in wrong[:3]]
            raise self._broken("index is a cache", f"slot {slot}: {len(wrong)} rows differ (live, log alone): {shown}")

    def _contents(self, index: MemoryIndex, slot: int) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for number in self._layout.partitions_of(slot):
            for kind in COMPARED:
                found |= dict(index.scan(*rows.kind_range(number, kind), 1 << 30))
        return found

    def started(self, worker: str, invitation: Invitation, token: int) -> None:
        """See `Witnesses`: a start needs a committed grant, once."""
        self._site.counts["starts"] += 1
        run_id, life = invitation.run_id, self.lives[invitation.run_id]
        grant = life.grants.get(token)
        if grant is None or grant.worker != worker:
            raise self._broken("grants", f"{worker} started {run_id} with token {token}; granted: {life.grants}")
        if token in life.starts:
            raise self._broken(
                "grants", f"{run_id} was started twice with token {token}: {worker}, {life.starts[token]}"
            )
        if run_id in self.once and len(life.starts) > life.redrives:
            raise self._broken("at most once", f"{run_id} was started again, by {worker}")
        life.starts[token] = worker

    # --- records

    def _state(self, record: Incoming) -> None:
        key = record.key or b""
        if key.startswith(b"__pos/") and record.value is not None:
            self._position(key, orjson.loads(record.value))
        elif key.startswith(b"cursor/"):
            self._cursor(key[7:], None if record.value is None else orjson.loads(record.value))

    def _position(self, key: bytes, fields: Json) -> None:
        cycle, inputs = self._positions.get(key, (0, {}))
        back = {
            name: (at, fields["inputs"].get(name)) for name, at in inputs.items() if fields["inputs"].get(name, 0) < at
        }
        if back or fields["cycle"] < cycle:
            raise self._broken("watermark", f"{key.decode()} went back: cycle {cycle} -> {fields['cycle']}, {back}")
        self._positions[key] = fields["cycle"], fields["inputs"]

    def _cursor(self, job_id: bytes, fields: Json | None) -> None:
        before = self._cursors.get(job_id)
        if fields is None:
            return
        if before is not None and fields["state"] != "deleted":
            same = before["gen"] == fields["gen"] and before["accepted"] == fields["accepted"]
            last, new = before.get("last_due") or 0, fields.get("last_due") or 0
            if fields["gen"] < before["gen"] or (same and (new < last or fields["n"] < before["n"])):
                raise self._broken("watermark", f"the cursor of {job_id.decode()} went back: {before} -> {fields}")
        self._cursors[job_id] = fields

    def _lease(self, record: Incoming) -> None:
        run_id = (record.key or b"").decode()
        life = self.lives[run_id]
        fields = {} if record.value is None else orjson.loads(record.value)
        self.permits.subtract(life.permits)
        life.permits = tuple(fields.get("permits", ()))
        self.permits.update(life.permits)
        if record.value is None:
            life.live = False
            return
        if life.permits and (life.state, fields["state"]) == ("running", "retry_wait"):
            raise self._broken("permits", f"{run_id} waits for its next attempt and holds {life.permits}")
        if not life.live and not _may_live(life):
            raise self._broken("one claim", f"{run_id} is live again, although it is {life.closed}")
        token = fields["token"]
        if token < life.token:
            raise self._broken("tokens grow", f"{run_id}: token {life.token} -> {token}")
        if fields["state"] == "running":
            self._running(run_id, life, fields)
        elif life.live and life.state == "running" and "was silent too long" in str(fields.get("reason")):
            frames = self._frames[self._layout.name("worker-events", lane=fields["lane"]), record.partition]
            self._lost(run_id, life, frames, orjson.loads(f"[{fields['history']}]")[-1]["ended"])
        life.live, life.state, life.token = True, fields["state"], token

    def _running(self, run_id: str, life: Life, fields: Json) -> None:
        grant = Grant(fields["token"], fields["attempt"], fields.get("worker"))
        known = life.grants.get(grant.token)
        if known is None:
            if grant.token <= life.token and life.grants:
                raise self._broken(
                    "tokens grow", f"{run_id}: granted to {grant.worker} with an old token {grant.token}"
                )
            if life.live and life.state == "running":
                raise self._broken("one holder", f"{run_id}: granted to {grant.worker} while {life.grants} runs")
            life.grants[grant.token] = grant
            life.heard_ms, life.granted_step = [fields.get("granted", 0)], self._site.loop.steps
        elif grant.worker not in (known.worker, None):
            raise self._broken("one holder", f"{run_id}: token {grant.token} of {known.worker} and {grant.worker}")

    def _lost(self, run_id: str, life: Life, frames: Frames, at_ms: int) -> None:
        """A lease is lost when nothing was heard for its length, by its owner's reckoning at_ms."""
        grant = life.grants[max(life.grants)]
        heard_ms = [each for each in life.heard_ms if each < at_ms] or life.heard_ms[:1]
        signs = [*map(frames.passed_by, heard_ms), frames.passed_by(NEVER_MS)]
        silent_ms = max(later - earlier for earlier, later in pairwise(signs))
        self._site.counts["leases_lost"] += 1
        if life.granted_step == self._site.loop.steps:
            raise self._broken("leases", f"{run_id}: granted to {grant.worker} and lost in one transaction")
        if silent_ms + ESTIMATE_MS < life.lease_ms:
            raise self._broken(
                "leases",
                f"{run_id}: {grant.worker} lost its lease of {life.lease_ms} ms after {silent_ms} ms of silence",
            )

    def _invitation(self, record: Incoming) -> None:
        fields = orjson.loads(record.value or b"{}")
        self.lives[fields["run_id"]].lease_ms = fields["lease_ms"]

    def _frame(self, record: Incoming) -> None:
        frame = orjson.loads(record.value or b"{}")
        worker = frame.get("worker")
        self._frames[record.topic, record.partition].add(record.appended_ms)
        for end in frame.get("ends", ()):
            self._ends[end["run_id"], end["token"]].add(f"{worker} {end['outcome']}")
        for run_id, token in frame.get("beats", ()):
            life = self.lives[run_id]
            grant = life.grants.get(token)
            if grant is not None and token == life.token and grant.worker == worker:
                life.heard_ms.append(record.appended_ms)

    def _execution(self, record: Incoming) -> None:
        fields = orjson.loads(record.value or b"{}")
        run_id, state = fields["run_id"], fields["state"]
        life = self.lives[run_id]
        if not _may_live(life):
            raise self._broken("one claim", f"{run_id} ends as {state}, although it was {life.closed}")
        life.closed.append(state)
        life.waits = str(fields.get("reason")).startswith("upstream:")
        self._site.counts["runs_closed"] += state in CLOSED

    def _result(self, record: Incoming) -> None:
        fields = orjson.loads(record.value or b"{}")
        run_id, token = fields["run_id"], fields["token"]
        life = self.lives[run_id]
        if token != max(life.grants, default=token):
            raise self._broken("stale completion", f"{run_id} ended with token {token}; granted: {sorted(life.grants)}")
        if fields["state"] == "succeeded":
            grant = life.grants.get(token)
            if grant is None or f"{grant.worker} succeeded" not in self._ends[run_id, token]:
                said = self._ends[run_id, token]
                raise self._broken("results", f"{run_id} succeeded with token {token} of {grant}, who said {said}")
        life.results[token] += 1

    def _definition(self, record: Incoming) -> None:
        headers = dict(record.headers)
        origin = headers.get("origin", b"").decode()
        if origin:
            self._decided(origin, "accepted")

    def _rejection(self, record: Incoming) -> None:
        fields = orjson.loads(record.value or b"{}")
        origin = fields["origin"]
        self._decided(f"{origin['topic']}/{origin['partition']}/{origin['offset']}", f"rejected: {fields['reason']}")

    def _decided(self, origin: str, fate: str) -> None:
        if origin in self.fates:
            raise self._broken("requests", f"{origin} was {self.fates[origin]}, and is {fate} again")
        self.fates[origin] = fate

    def _delivery(self, record: Incoming) -> None:
        run_id = dict(record.headers)["noontide-run"].decode()
        life = self.lives[run_id]
        life.delivered[record.topic] += 1
        if life.delivered[record.topic] > 1:
            raise self._broken("exactly once", f"{run_id} is on {record.topic} again")


def _may_live(life: Life) -> bool:
    """Whether a run may be live: it never ended, it died and was redriven, or its upstream did and was."""
    return not life.closed or life.waits or (life.closed[-1] == "dead" and life.redrives >= life.closed.count("dead"))


def _rank(at: TopicPartition) -> tuple[bool, bool, TopicPartition]:
    """What is said before what follows from it; between topics of one transaction there is no order."""
    return ".worker-events." not in at.topic, not at.topic.endswith(".leases"), at
