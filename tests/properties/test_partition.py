"""Random lives of jobs: whatever happens, each occurrence ends exactly once, and the log alone gives the same rows.

What had to happen is worked out here, from the requests alone: occurrences of plain schedules between one accepted
version and the next. What did happen is read from the topics.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.actors.test_restore import contents

from noontide.core.cursor import JobState
from noontide.core.instants import format_basic, parse_instant
from noontide.records.topics import Layout
from noontide.testing.builders import Document, cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

JOBS = ("a", "b", "c")
TOPICS = ("orders", "elsewhere")
CLOSED = {"succeeded", "dead", "cancelled"}
DECIDED = {"skipped", "missed", "coalesced", "dropped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One accepted definition, or a deletion (schedule None), as the script wrote it."""

    at_ms: int
    schedule: tuple[str, int] | None
    paused: bool = False
    generation: int = 1


@dataclass(slots=True)
class Ledger:
    """What the script asked for, by job."""

    versions: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))

    def accept(self, job_id: str, schedule: tuple[str, int] | None, at_ms: int, *, paused: bool = False) -> None:
        known = self.versions[job_id]
        generation = known[-1].generation if known else 1
        if known and known[-1].schedule is None and schedule is not None:
            generation += 1
        known.append(Version(at_ms=at_ms, schedule=schedule, paused=paused, generation=generation))

    def exists(self, job_id: str) -> bool:
        return bool(self.versions[job_id]) and self.versions[job_id][-1].schedule is not None

    def expected(self, job_id: str, until_ms: int) -> Counter[tuple[int, int]]:
        """(generation, due) of every occurrence up to an instant."""
        found: Counter[tuple[int, int]] = Counter()
        known = self.versions[job_id]
        for index, version in enumerate(known):
            end_ms = known[index + 1].at_ms if index + 1 < len(known) else until_ms
            previous = known[index - 1] if index else None
            for due_ms in _dues(version, previous, found, end_ms):
                found[version.generation, due_ms] += 1
        return found


def _dues(version: Version, previous: Version | None, before: Counter[tuple[int, int]], end_ms: int) -> Iterator[int]:
    if version.schedule is None or version.paused:
        return
    kind, number = version.schedule
    if kind == "at":
        at_ms = START_MS + number
        is_new = previous is None or previous.schedule != version.schedule
        ran = (version.generation, at_ms) in before
        if not ran and (version.at_ms < at_ms <= end_ms or (at_ms <= version.at_ms and is_new)):
            yield at_ms
        return
    step_ms = number * 1_000
    due_ms = version.at_ms - (version.at_ms - START_MS) % step_ms + step_ms
    while due_ms <= end_ms:
        yield due_ms
        due_ms += step_ms


def _definition(job_id: str, schedule: tuple[str, int], **fields: object) -> Document:
    kind, number = schedule
    match kind:
        case "at":
            form = once(START_MS + number)
        case "cron":
            form = cron(f"*/{number} * * * * *", seconds=True)
        case _:
            form = every(f"PT{number}S", anchor_ms=START_MS)
    return {**job(job_id, form), **fields}


schedules = st.one_of(
    st.tuples(st.just("every"), st.integers(1, 7)),
    st.tuples(st.just("cron"), st.sampled_from([1, 2, 5, 10, 30])),  # steps that divide the minute
    st.tuples(st.just("at"), st.integers(-5_000, 60_000)),
)
fields = st.fixed_dictionaries(
    {
        "target": st.sampled_from([{"topic": {"name": name}} for name in TOPICS]),
        "misfire": st.sampled_from(["run_once", "run_all", "skip"]),
        "overlap": st.sampled_from(["skip", "queue", "allow", "replace"]),
        "grace": st.sampled_from(["PT0.5S", "PT3S", "PT60S"]),
        "run_all_max": st.sampled_from([1, 3, 100]),
        "retry": st.just({"backoff": ["PT1S"], "max_attempts": 3}),
        "payload": st.integers(0, 9),
    }
)
jobs = st.sampled_from(JOBS)
first_puts = st.tuples(*(st.tuples(st.just("put"), st.just(name), schedules, fields) for name in JOBS))
operations = st.one_of(
    st.tuples(st.just("put"), jobs, schedules, fields),
    st.tuples(st.just("change"), jobs, fields),
    st.tuples(st.just("pause"), jobs),
    st.tuples(st.just("delete"), jobs),
    st.tuples(st.just("trigger"), jobs),
    st.tuples(st.just("cancel"), jobs),
    st.tuples(st.just("advance"), st.integers(0, 9_000)),
    st.tuples(st.just("jump"), st.integers(0, 25_000)),
    st.tuples(st.just("wait"), st.integers(0, 3_000)),
    st.tuples(st.just("idle")),
    st.tuples(st.just("step")),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("doubt"), st.booleans()),
    st.tuples(st.just("sicken"), st.sampled_from(TOPICS), st.booleans()),
    st.tuples(st.just("heal"), st.sampled_from(TOPICS)),
    st.tuples(st.just("hold"), st.booleans()),
)


class Play:
    """Carries out a script and keeps the ledger."""

    def __init__(self, stage: MemoryStage) -> None:
        self.stage = stage
        self.ledger = Ledger()
        self.doubted = False
        self.triggers: list[str] = []
        self.definitions: dict[str, tuple[tuple[str, int], dict[str, object]]] = {}

    async def act(self, operation: tuple[object, ...]) -> None:
        name, *arguments = operation
        await getattr(self, f"_{name}")(*arguments)

    async def rest(self) -> None:
        """Everything heals, and time passes until nothing is live and nothing is late."""
        stage = self.stage
        for topic in TOPICS:
            stage.heal(topic)
        stage.holds_sends = False
        for _ in range(200):
            await stage.advance(700)
            cursors = [stage.cursor(job_id) for job_id in JOBS]
            late = [each for each in cursors if each and each.due_ms and each.due_ms <= stage.clock.now_ms()]
            if not stage.leases() and not late:
                return
        raise AssertionError(f"not at rest: {stage.leases()}, {late}")

    async def _put(self, job_id: str, schedule: tuple[str, int], given: dict[str, object]) -> None:
        if schedule[0] == "at" and self.ledger.exists(job_id):  # an update that goes back is a matter of its own
            schedule = ("at", int(self.stage.clock.boot_ms()) + 1 + schedule[1] % 9_000)
        self.definitions[job_id] = (schedule, given)
        self._define(job_id, paused=False)

    async def _change(self, job_id: str, given: dict[str, object]) -> None:
        if self.ledger.exists(job_id):
            self.definitions[job_id] = (self.definitions[job_id][0], given)
            self._define(job_id, paused=False)

    async def _pause(self, job_id: str) -> None:
        if self.ledger.exists(job_id):
            self._define(job_id, paused=True)

    def _define(self, job_id: str, *, paused: bool) -> None:
        schedule, given = self.definitions[job_id]
        self.stage.put({**_definition(job_id, schedule, **given), "paused": paused})
        self.ledger.accept(job_id, schedule, self.stage.clock.now_ms(), paused=paused)

    async def _delete(self, job_id: str) -> None:
        if self.ledger.exists(job_id):
            self.stage.delete(job_id)
            self.ledger.accept(job_id, None, self.stage.clock.now_ms())

    async def _trigger(self, job_id: str) -> None:
        if self.ledger.exists(job_id):
            self.triggers.append(f"{job_id}:m{self.stage.trigger(job_id)}")

    async def _cancel(self, job_id: str) -> None:
        self.stage.cancel(job_id)

    async def _advance(self, duration_ms: int) -> None:
        await self.stage.advance(duration_ms)

    async def _jump(self, duration_ms: int) -> None:
        await self._decide_what_came_before()
        await self.stage.jump(duration_ms)

    async def _wait(self, duration_ms: int) -> None:
        await self._decide_what_came_before()
        self.stage.clock.advance(duration_ms)

    async def _decide_what_came_before(self) -> None:
        """After a doubt a slot takes one item at a time: what is due may then overtake requests that wait."""
        if self.doubted:
            await self.stage.run_until_idle()

    async def _idle(self) -> None:
        await self.stage.run_until_idle()

    async def _step(self) -> None:
        await self.stage.slots[0].step()

    async def _crash(self, from_log_alone: bool) -> None:
        await self.stage.crash(from_log_alone=from_log_alone)

    async def _checkpoint(self) -> None:
        self.stage.checkpoint()

    async def _doubt(self, took_effect: bool) -> None:
        self.doubted = True
        self.stage.fail_next_commit(took_effect=took_effect)

    async def _sicken(self, topic: str, noticed: bool) -> None:
        self.doubted |= not noticed
        self.stage.sicken(topic, noticed=noticed)

    async def _heal(self, topic: str) -> None:
        self.stage.heal(topic)

    async def _hold(self, holds: bool) -> None:
        self.stage.holds_sends = holds


def _due_of(text: object) -> int:
    return parse_instant(text, zone=None, pointer="")


def check(play: Play) -> None:
    """Every occurrence ended once; every record belongs to a run that says so; the log gives the same rows."""
    stage, until_ms = play.stage, play.stage.clock.now_ms()
    lines = stage.executions()
    closed = Counter(str(line["run_id"]) for line in lines if line["state"] in CLOSED)
    assert max(closed.values(), default=1) == 1, [name for name, count in closed.items() if count > 1]
    delivered = {topic: Counter(stage.run_ids(topic)) for topic in TOPICS}
    assert max(delivered["orders"].values(), default=1) == 1, "delivered twice in transactions"
    for line in lines:
        if line["state"] == "succeeded":
            topic = str(line["target"]).removeprefix("kafka://")
            assert delivered[topic][str(line["run_id"])] >= 1, f"succeeded without a record: {line}"
    states = {str(line["run_id"]): line["state"] for line in lines if line["state"] in CLOSED}
    assert all(states.get(name) == "succeeded" for name in delivered["orders"])
    for job_id in JOBS:
        _check_job(play, job_id, [line for line in lines if line["job_id"] == job_id], until_ms)
    by_hand = Counter(str(line["run_id"]) for line in lines if ":m" in str(line["run_id"]))
    assert by_hand == Counter(play.triggers)
    index = stage.slots[0].index
    assert contents(stage.rebuilt_index(), stage.layout) == contents(index, stage.layout)


def _check_job(play: Play, job_id: str, lines: list[dict[str, object]], until_ms: int) -> None:
    expected = play.ledger.expected(job_id, until_ms)
    settled: Counter[tuple[int, int]] = Counter()
    for line in lines:
        name = str(line["run_id"])
        if ":m" in name:
            continue
        generation = int(name.partition("~")[2] or 1)
        first_ms = _due_of(line["due"])
        last_ms = _due_of(line.get("until", line["due"]))
        assert name.startswith(f"{job_id}:{format_basic(first_ms)}")
        covered = [(g, due_ms) for g, due_ms in expected if g == generation and first_ms <= due_ms <= last_ms]
        assert len(covered) == line.get("count", 1), f"a line that covers {covered}: {line}"
        settled.update(covered)
    assert settled == expected, f"{job_id}: lost {expected - settled}, too many {settled - expected}"
    cursor = play.stage.cursor(job_id)
    if cursor is not None:
        assert cursor.state in (JobState.ACTIVE, JobState.PAUSED, JobState.COMPLETED, JobState.DELETED)


async def perform(script: list[tuple[object, ...]]) -> None:
    async with MemoryStage(layout=Layout(partitions=2, slots=1)) as stage:
        stage.register("orders")
        stage.create_topic("elsewhere")
        play = Play(stage)
        for operation in script:
            await play.act(operation)
            index = stage.slots[0].index
            if operation[0] in ("idle", "crash"):
                assert contents(stage.rebuilt_index(), stage.layout) == contents(index, stage.layout)
        await play.rest()
        check(play)
        await stage.crash(from_log_alone=True)
        check(play)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(puts=first_puts, script=st.lists(operations, min_size=10, max_size=40))
def test_each_occurrence_ends_exactly_once(
    puts: tuple[tuple[object, ...], ...], script: list[tuple[object, ...]]
) -> None:
    asyncio.run(perform([*puts, *script]))
