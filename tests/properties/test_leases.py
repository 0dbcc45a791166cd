"""Random lives of runs that workers take: whatever is said, lost, doubled or late, and whoever dies.

Each run ends once; a token names one grant; only its holder ends it; nothing stays held; the log alone gives the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.actors.test_restore import contents
from tests.actors.workers import handler

from noontide.actors.settings import SchedulerSettings
from noontide.core.run import CLOSED, Run, RunState
from noontide.records.leases import decode_lease
from noontide.records.topics import Layout
from noontide.records.worker_events import End, Frame, Outcome, decode_frame
from noontide.testing.builders import every, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

JOBS, WORKERS = ("a", "b", "c"), ("w-1", "w-2")
SMALL = SchedulerSettings(window_min=2, window_max=8, cancel_grace_ms=8_000)

jobs, workers, numbers = st.sampled_from(JOBS), st.sampled_from(WORKERS), st.sampled_from([0, 0, 1, 1, 2, 3, 8, 30])
fields = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from(["skip", "queue", "allow", "replace"]),
        "guarantee": st.sampled_from(["at_least_once", "at_most_once"]),
        "timeout": st.sampled_from(["PT20S", "PT5M"]),
        "queue_deadline": st.sampled_from(["PT10S", "PT10M"]),
        "attempts": st.integers(1, 4),
        "priority": st.integers(0, 9),
    }
)
operations = st.one_of(
    st.tuples(st.just("put"), jobs, st.sampled_from([0, 5, 20]), fields),
    st.tuples(st.just("delete"), jobs),
    st.tuples(st.just("cancel"), jobs),
    st.tuples(st.just("trigger"), jobs),
    *[st.tuples(st.just("claim"), workers, numbers, st.sampled_from([0, 0, 0, 0, 0, -1, 1]))] * 8,
    *[st.tuples(st.just("beat"), workers)] * 3,
    *[st.tuples(st.just("end"), workers, numbers, st.sampled_from(Outcome), st.sampled_from([False, False, True]))] * 6,
    st.tuples(st.just("repeat"), numbers),
    st.tuples(st.just("advance"), st.sampled_from([100, 1_000, 6_000, 31_000])),
    st.tuples(st.just("jump"), st.sampled_from([2_000, 40_000, 300_000])),
    st.tuples(st.just("wait"), st.integers(0, 3_000)),
    st.tuples(st.just("idle")),
    st.tuples(st.just("step")),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("doubt"), st.booleans()),
    st.tuples(st.just("deafen"), st.booleans()),
)


class Play:
    """Carries out a script; frames are remembered, so that they can be doubled, and judged."""

    def __init__(self, stage: MemoryStage) -> None:
        self.stage = stage
        self.frames: list[Frame] = []
        self.known: set[str] = set()

    async def act(self, operation: tuple[object, ...]) -> None:
        name, *arguments = operation
        await getattr(self, f"_{name}")(*arguments)

    def say(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.stage.say(frame)

    def grants(self, worker: str) -> dict[str, int]:
        """Tokens of all that the worker was ever granted, the latest of each run."""
        return {run_id: token for answer in self.stage.answers(worker) for run_id, _, token, _ in answer.grants}

    async def rest(self) -> None:
        """Jobs end, somebody does all the work, and time passes until nothing is live."""
        stage = self.stage
        stage.slots[0].loses_answers = False
        for job_id in self.known:
            stage.put(handler(job_id, every("PT1H"), paused=True))
        crew = Crew(stage)
        crew.hire("w-last", does=lambda _run: Work(500), capacity=10_000)
        for _ in range(80):
            await stage.advance(10_000)
            if not stage.leases():
                return
        raise AssertionError(f"not at rest: {stage.leases()}")

    async def _put(self, job_id: str, step_s: int, given: dict[str, object]) -> None:
        attempts = given["attempts"]
        more = {name: value for name, value in given.items() if name != "attempts"}
        if more["guarantee"] == "at_least_once":
            more["retry"] = {"max_attempts": attempts, "backoff": ["PT3S"]}
        schedule = every(f"PT{step_s}S", anchor_ms=START_MS) if step_s else once(self.stage.clock.now_ms() + 1_000)
        self.stage.put(handler(job_id, schedule, **more))
        self.known.add(job_id)

    async def _delete(self, job_id: str) -> None:
        self.stage.delete(job_id)
        self.known.discard(job_id)

    async def _cancel(self, job_id: str) -> None:
        self.stage.cancel(job_id)

    async def _trigger(self, job_id: str) -> None:
        self.stage.trigger(job_id)

    async def _claim(self, worker: str, number: int, off: int) -> None:
        offers = self.stage.invitations()[-(number + 1) :]
        if offers:
            self.say(Frame(worker=worker, claims=[(offers[0].run_id, offers[0].attempt + off)]))

    async def _beat(self, worker: str) -> None:
        self.say(Frame(worker=worker, beats=list(self.grants(worker).items())))

    async def _end(self, worker: str, number: int, outcome: Outcome, permanent: bool) -> None:
        held = list(self.grants(worker).items())[-(number % 3 + 1) :]
        if held:
            run_id, token = held[0]
            self.say(Frame(worker=worker, ends=[End(run_id=run_id, token=token, outcome=outcome, permanent=permanent)]))

    async def _repeat(self, number: int) -> None:
        if self.frames:
            self.say(self.frames[-(number % len(self.frames) + 1)])

    async def _advance(self, duration_ms: int) -> None:
        await self.stage.advance(duration_ms)

    async def _jump(self, duration_ms: int) -> None:
        await self.stage.jump(duration_ms)

    async def _wait(self, duration_ms: int) -> None:
        self.stage.clock.advance(duration_ms)

    async def _idle(self) -> None:
        await self.stage.run_until_idle()
        check_memory(self.stage)

    async def _step(self) -> None:
        await self.stage.slots[0].step()

    async def _crash(self, from_log_alone: bool) -> None:
        await self.stage.crash(from_log_alone=from_log_alone)
        check_memory(self.stage)

    async def _checkpoint(self) -> None:
        self.stage.checkpoint()

    async def _doubt(self, took_effect: bool) -> None:
        self.stage.fail_next_commit(took_effect=took_effect)

    async def _deafen(self, loses: bool) -> None:
        self.stage.slots[0].loses_answers = loses


def check_memory(stage: MemoryStage) -> None:
    """What the keeper holds is what is queued or running, and the log alone gives the same rows."""
    slot = stage.slots[0].slot
    live = {run_id: run for each in slot.partitions.values() for run_id, run in each.live.by_id.items()}
    assert live == stage.leases()
    held = {run_id for run_id, run in live.items() if run.state in (RunState.QUEUED, RunState.RUNNING)}
    assert slot.keeper._held.keys() == held
    for name, lane in slot.keeper._lanes.items():
        of_lane = [run for run in live.values() if run.run_id in held and run.lane == name]
        assert lane.held == len(of_lane)
        assert lane.queued == sum(run.state is RunState.QUEUED for run in of_lane) <= SMALL.window_max
    assert contents(stage.rebuilt_index(), stage.layout) == contents(stage.slots[0].index, stage.layout)


def check(play: Play) -> None:
    """Everything that was promised, read from the topics."""
    stage = play.stage
    check_memory(stage)
    keeper = stage.slots[0].slot.keeper
    assert keeper._held == {}
    assert keeper.silent_lanes(1 << 60, 0) == []
    lives = _lives(stage)
    closed = Counter(str(line["run_id"]) for line in stage.executions() if line["state"] in CLOSED)
    assert closed == Counter(lives.keys()), "each run that was ever live is closed, and once"
    holders = _holders(lives)
    for worker in (*WORKERS, "w-last"):
        for answer in stage.answers(worker):
            for run_id, attempt, token, _ in answer.grants:
                assert holders[run_id, token] == (worker, attempt), "a token names one grant"
    _check_results(play, holders)


def _lives(stage: MemoryStage) -> dict[str, list[Run]]:
    """What `leases` said of each run, in order."""
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for record in stage.records("noontide.leases"):
        if record.value is not None:
            run = decode_lease(record.key or b"", record.value)
            found[run.run_id].append(run)
    return found


def _holders(lives: dict[str, list[Run]]) -> dict[tuple[str, int], tuple[str, int]]:
    """(worker, attempt) of each grant; tokens and attempts of a run only go on."""
    holders: dict[tuple[str, int], tuple[str, int]] = {}
    for run_id, steps in lives.items():
        for before, after in pairwise(steps):
            assert after.token in (before.token, before.token + 1)
            if after.token > before.token:
                assert (before.state, after.state) == (RunState.QUEUED, RunState.RUNNING)
                assert after.attempt == before.attempt + 1
                holders[run_id, after.token] = (str(after.worker), after.attempt)
            else:
                assert after.attempt in (before.attempt, before.attempt - 1)
    return holders


def _check_results(play: Play, holders: dict[tuple[str, int], tuple[str, int]]) -> None:
    said: defaultdict[tuple[str, int], set[tuple[str, Outcome]]] = defaultdict(set)
    for record in play.stage.records("noontide.worker-events.default"):
        for worker, end in _ends(record.value or b""):
            said[end.run_id, end.token].add((worker, end.outcome))
    for result in play.stage.results():
        grant = (str(result["run_id"]), int(str(result["token"])))
        if result["state"] != "succeeded":
            continue
        worker, attempt = holders[grant]
        assert result["attempt"] == attempt
        is_open = (worker, Outcome.OPEN) in said[grant]
        assert any(who == worker or is_open for who, outcome in said[grant] if outcome is Outcome.SUCCEEDED)
    starts = Counter(run_id for run_id, _ in holders)
    handed_back = Counter(run_id for (run_id, _), ends in said.items() for _, o in ends if o is Outcome.HANDED_BACK)
    for letter in play.stage.dead_letters():
        if str(letter["reason"]).startswith("outcome unknown"):
            assert starts[str(letter["run_id"])] <= 1 + handed_back[str(letter["run_id"])]


def _ends(value: bytes) -> list[tuple[str, End]]:
    frame = decode_frame(value)
    return [(frame.worker, end) for end in frame.ends]


async def perform(script: list[tuple[object, ...]]) -> None:
    async with MemoryStage(layout=Layout(partitions=2, slots=1), settings=SMALL) as stage:
        play = Play(stage)
        for operation in script:
            await play.act(operation)
        await play.rest()
        check(play)
        await stage.crash(from_log_alone=True)
        check(play)


first = st.tuples(
    *(st.tuples(st.just("put"), st.just(name), st.sampled_from([0, 5, 20]), fields) for name in JOBS),
    st.just(("advance", 6_000)),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=first, script=st.lists(operations, min_size=10, max_size=60))
def test_each_run_ends_once_by_its_holder(
    first: tuple[tuple[object, ...], ...], script: list[tuple[object, ...]]
) -> None:
    asyncio.run(perform([*first, *script]))
