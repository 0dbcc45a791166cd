"""Limits across partitions: never one too many, nobody forgotten, nothing leaked, whatever crashes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.actors.lines import SECOND_MS
from tests.actors.workers import handler

from noontide.actors.effects import Scene
from noontide.actors.permits import Permits
from noontide.core.run import RunState
from noontide.records.signals import Ask
from noontide.records.topics import Layout
from noontide.records.worker_events import Outcome
from noontide.testing.builders import every, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.permits_judge import held_permits, leaked_permits, standing
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

TENANT = "tenant/t"


@pytest.fixture
async def stage() -> AsyncIterator[MemoryStage]:
    """Two slots, so that a run and its limiter are often apart."""
    async with MemoryStage(layout=Layout(partitions=8, slots=2)) as stage:
        yield stage


def put(stage: MemoryStage, count: int, *, tenant: str = "t", at_ms: int = START_MS, **fields: object) -> None:
    for number in range(count):
        stage.put(handler(f"{tenant}-{number}", once(at_ms), tenant=tenant, **fields))


def most_at_once(stage: MemoryStage, crew: Crew) -> int:
    """Most runs that workers held at the same time, by their own account."""
    ends = {line["run_id"]: line for line in stage.executions() if line["state"] == "succeeded"}
    steps = Counter[int]()
    for worker in crew.workers:
        for start in worker.starts:
            steps[start.at_ms] += 1
            if start.run_id in ends:
                steps[start.at_ms + 1_000] -= 1
    at_once, most = 0, 0
    for at_ms in sorted(steps):
        at_once += steps[at_ms]
        most = max(most, at_once)
    return most


def in_work(stage: MemoryStage) -> int:
    return sum(run.state in (RunState.QUEUED, RunState.RUNNING) for run in stage.leases().values())


async def test_a_tenant_never_has_more_runs_than_its_cap(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 3})
    crew = Crew(stage)
    crew.hire()
    put(stage, 20)
    await stage.advance(500)
    assert in_work(stage) == 3
    assert Counter(run.reason for run in stage.leases().values())["waits for a permit of tenant/t"] == 17
    await stage.advance(30 * SECOND_MS)
    assert most_at_once(stage, crew) == 3
    assert len(stage.executions()) == 20
    assert standing(stage) == {}


async def test_other_tenants_do_not_wait(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 1})
    worker = Crew(stage).hire()
    put(stage, 5)
    put(stage, 5, tenant="u")
    await stage.advance(700)
    assert Counter(start.run_id[0] for start in worker.starts) == {"t": 1, "u": 5}
    assert not any(run.awaits or run.permits for run in stage.leases().values() if run.tenant == "u")


async def test_a_cap_is_raised_and_lowered_while_runs_wait(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 1})
    Crew(stage).hire(does=lambda _run: Work(10_000))
    put(stage, 30)
    await stage.advance(700)
    assert in_work(stage) == 1
    stage.configure(TENANT, {"concurrency_max": 6})
    await stage.advance(200)
    assert in_work(stage) == 6
    stage.configure(TENANT, {"concurrency_max": 2})
    await stage.advance(10_100)
    assert in_work(stage) == 2
    stage.configure(TENANT, None)
    await stage.advance(200)
    assert in_work(stage) == 24
    await stage.advance(60 * SECOND_MS)
    assert standing(stage) == {}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.HANDED_BACK, Outcome.CANCELLED])
async def test_a_permit_comes_back_however_the_attempt_ends(stage: MemoryStage, outcome: Outcome) -> None:
    stage.configure(TENANT, {"concurrency_max": 1})
    first = True

    def does(_run: object) -> Work:
        nonlocal first
        work, first = Work(1_000, outcome if first else Outcome.SUCCEEDED), False
        return work

    Crew(stage).hire(does=does)
    put(stage, 3, retry={"backoff": ["PT30S"]})
    await stage.advance(20 * SECOND_MS)
    assert sum(line["state"] == "succeeded" for line in stage.executions()) >= 2
    await stage.advance(60 * SECOND_MS)
    assert standing(stage) == {}


async def test_a_permit_comes_back_when_a_worker_is_lost(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 1})
    crew = Crew(stage)
    dying = crew.hire("w-1", does=lambda _run: Work(None))
    put(stage, 2, lease="PT5S")
    await stage.advance(SECOND_MS)
    dying.kill()
    crew.hire("w-2")
    await stage.advance(40 * SECOND_MS)
    assert len(stage.executions()) == 2
    assert standing(stage) == {}


async def test_runs_that_are_cancelled_while_they_wait_want_nothing_any_more(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 1})
    Crew(stage).hire(does=lambda _run: Work(20_000))
    put(stage, 10)
    await stage.advance(SECOND_MS)
    for number in range(10):
        stage.cancel(f"t-{number}")
    await stage.advance(11 * SECOND_MS)  # the one that runs hears of it with its next heartbeat
    assert standing(stage) == {}
    assert {line["state"] for line in stage.executions()} == {"cancelled"}


async def test_a_concurrency_key_lets_one_run_through(stage: MemoryStage) -> None:
    crew = Crew(stage)
    crew.hire()
    put(stage, 6, concurrency_key="ledger/2026")
    await stage.advance(500)
    assert in_work(stage) == 1
    await stage.advance(10 * SECOND_MS)
    assert most_at_once(stage, crew) == 1
    assert len(stage.executions()) == 6
    stage.configure(TENANT, {"concurrency_keys": {"ledger/2026": 4}})
    for number in range(10, 16):
        stage.put(handler(f"t-{number}", once(START_MS), tenant="t", concurrency_key="ledger/2026"))
    await stage.advance(300)
    assert in_work(stage) == 4


async def test_two_tenants_share_a_target_by_their_weights(stage: MemoryStage) -> None:
    stage.configure("target/crm", {"handler": "work", "concurrency_max": 8})
    stage.configure("tenant/t", {"weight": 3})
    Crew(stage).hire(does=lambda _run: Work(60_000))
    put(stage, 30)
    put(stage, 30, tenant="u")
    await stage.advance(500)
    running = Counter(run.tenant for run in stage.leases().values() if run.permits)
    assert running == {"t": 6, "u": 2}


async def test_starts_per_second(stage: MemoryStage) -> None:
    stage.configure("target/crm", {"handler": "work", "starts_per_second_max": 5})
    worker = Crew(stage).hire()
    put(stage, 40)
    await stage.advance(4_000)
    times = sorted(start.at_ms for start in worker.starts)
    assert 18 <= len(times) <= 22
    assert max(sum(at <= each < at + 1_000 for each in times) for at in times) <= 6
    await stage.advance(20_000)
    assert len(stage.executions()) == 40
    assert standing(stage) == {}


async def test_slower_than_one_start_in_a_second(stage: MemoryStage) -> None:
    stage.configure("target/crm", {"handler": "work", "starts_per_second_max": 0.2})
    worker = Crew(stage).hire()
    put(stage, 4)
    await stage.advance(16_000)
    times = sorted(start.at_ms for start in worker.starts)
    assert len(times) == 4
    assert min(later - earlier for earlier, later in pairwise(times)) >= 4_900


async def test_permits_of_several_kinds_are_taken_in_one_order(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 4})
    stage.configure("target/crm", {"handler": "work", "concurrency_max": 2})
    Crew(stage).hire()
    put(stage, 9, concurrency_key="k")
    await stage.advance(900)
    has = Counter(run.permits for run in stage.leases().values())
    assert has == {("key/t/k", TENANT, "target/crm"): 1, (): 8}
    await stage.advance(60 * SECOND_MS)
    assert len(stage.executions()) == 9
    assert standing(stage) == {}


async def test_runs_that_wait_for_a_key_keep_nothing_from_their_tenant(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 4})
    worker = Crew(stage).hire(does=lambda _run: Work(5_000))
    put(stage, 20, concurrency_key="k")
    await stage.advance(SECOND_MS)
    for number in range(20, 23):
        stage.put(handler(f"t-{number}", once(START_MS), tenant="t"))
    await stage.advance(SECOND_MS)
    assert {"t-20", "t-21", "t-22"} < {start.run_id.partition(":")[0] for start in worker.starts}
    assert in_work(stage) == 4


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_a_crash_neither_leaks_nor_doubles(stage: MemoryStage, from_log_alone: bool) -> None:
    stage.configure(TENANT, {"concurrency_max": 3})
    Crew(stage).hire()
    put(stage, 15)
    for _ in range(12):
        await stage.advance(300)
        await stage.crash(from_log_alone=from_log_alone)
        assert in_work(stage) <= 3
    await stage.advance(60 * SECOND_MS)
    assert len(stage.executions()) == 15
    assert standing(stage) == {}


@pytest.mark.parametrize("took_effect", [False, True])
@pytest.mark.parametrize("slot", [0, 1])
async def test_commits_in_doubt(stage: MemoryStage, took_effect: bool, slot: int) -> None:
    stage.configure(TENANT, {"concurrency_max": 2})
    Crew(stage).hire()
    put(stage, 10)
    for _ in range(20):
        stage.fail_next_commit(took_effect=took_effect, slot=slot)
        await stage.advance(350)
        assert in_work(stage) <= 2
    await stage.advance(60 * SECOND_MS)
    assert len(stage.executions()) == 10
    assert standing(stage) == {}


@pytest.mark.parametrize("limiter, document", [(TENANT, {}), ("target/crm", {"handler": "work"})])
@pytest.mark.parametrize("crashes", [False, True])
async def test_runs_that_were_with_workers_before_there_was_a_cap_count_for_it(
    stage: MemoryStage, limiter: str, document: dict[str, object], crashes: bool
) -> None:
    Crew(stage).hire(does=lambda run: Work(10_000 if run.job_id < "t-2" else 20_000))
    put(stage, 30, concurrency_key=None)
    await stage.advance(500)
    assert in_work(stage) == 30
    stage.configure(limiter, {**document, "concurrency_max": 3})
    for number in range(30, 40):
        stage.put(handler(f"t-{number}", once(START_MS), tenant="t"))
    await stage.advance(1_000)
    if crashes:
        await stage.crash()
    await stage.advance(1_000)
    assert in_work(stage) == 30
    assert len(stage.executions()) == 0
    await stage.advance(20_000)
    assert in_work(stage) == 3
    stage.configure(limiter, None)
    await stage.advance(40_000)
    assert len(stage.executions()) == 40
    assert standing(stage) == {}


async def test_a_target_that_gets_another_name_keeps_its_runs_in_count(stage: MemoryStage) -> None:
    stage.configure("target/crm", {"handler": "work", "concurrency_max": 2})
    Crew(stage).hire()
    put(stage, 8)
    await stage.advance(700)
    stage.configure("target/crm", None)
    stage.configure("target/mail", {"handler": "work", "concurrency_max": 2})
    for _ in range(20):
        await stage.advance(100)
        assert in_work(stage) <= 2
    await stage.advance(60 * SECOND_MS)
    assert len(stage.executions()) == 8
    assert standing(stage) == {}


async def test_a_cap_of_nothing_stops_and_goes_on(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 2})
    Crew(stage).hire()
    put(stage, 6)
    await stage.advance(700)
    stage.configure(TENANT, {"concurrency_max": 0})
    await stage.advance(60 * SECOND_MS)
    assert (in_work(stage), len(stage.executions())) == (0, 2)
    stage.configure(TENANT, {"concurrency_max": 2})
    await stage.advance(60 * SECOND_MS)
    assert len(stage.executions()) == 6
    assert standing(stage) == {}


async def test_a_rate_that_is_raised_counts_at_once(stage: MemoryStage) -> None:
    stage.configure("target/crm", {"handler": "work", "starts_per_second_max": 0.001})
    worker = Crew(stage).hire()
    put(stage, 20)
    await stage.advance(2_000)
    assert len(worker.starts) == 1
    stage.configure("target/crm", {"handler": "work", "starts_per_second_max": 10})
    await stage.advance(3_000)
    assert len(worker.starts) == 20
    times = sorted(start.at_ms for start in worker.starts)[1:]
    assert max(sum(at <= each < at + 1_000 for each in times) for at in times) <= 11


async def test_two_limits_of_one_target_hold_both(stage: MemoryStage) -> None:
    stage.configure("target/crm", {"handler": "work", "concurrency_max": 2})
    stage.configure("target/all", {"handler": "work", "concurrency_max": 5})
    crew = Crew(stage)
    crew.hire()
    put(stage, 8)
    await stage.advance(60 * SECOND_MS)
    assert most_at_once(stage, crew) == 2
    assert standing(stage) == {}


async def test_retries_give_their_permits_to_others_meanwhile(stage: MemoryStage) -> None:
    stage.configure(TENANT, {"concurrency_max": 1})
    Crew(stage).hire(does=lambda run: Work(100, Outcome.FAILED if run.job_id == "t-0" else Outcome.SUCCEEDED))
    put(stage, 3, retry={"backoff": ["PT1H"]})
    await stage.advance(10 * SECOND_MS)
    assert {line["job_id"] for line in stage.executions()} == {"t-1", "t-2"}
    assert held_permits(stage) == 0


steps = st.lists(
    st.sampled_from(["wait", "crash", "doubt", "doubt that took effect", "cancel", "cap", "none", "kill"]), max_size=12
)


@settings(deadline=None, max_examples=40)
@given(steps=steps, cap=st.integers(1, 4))
async def test_whatever_happens(steps: list[str], cap: int) -> None:
    async with MemoryStage(layout=Layout(partitions=8, slots=2)) as stage:
        stage.configure(TENANT, {"concurrency_max": cap})
        crew = Crew(stage)
        crew.hire("w-0", does=lambda _run: Work(700))
        put(stage, 8, lease="PT5S")
        stage.put(handler("often", every("PT1S"), tenant="t", max_runs=5))
        most = cap
        for number, step in enumerate(steps):
            match step:
                case "crash":
                    await stage.crash()
                case "doubt" | "doubt that took effect":
                    stage.fail_next_commit(took_effect=step != "doubt", slot=number % 2)
                case "cancel":
                    stage.cancel(f"t-{number % 8}")
                case "cap":
                    stage.configure(TENANT, {"concurrency_max": 1 + number % 3})
                    if most == 99:  # from here on no more than run at this moment
                        most = cap
                    most = max(most, 1 + number % 3, in_work(stage))
                case "none":
                    stage.configure(TENANT, None)
                    most = 99
                case "kill":
                    crew.workers[-1].kill()
                    crew.hire(f"w-{number + 1}", does=lambda _run: Work(700))
            await stage.advance(400)
            assert in_work(stage) <= most
        stage.configure(TENANT, {"concurrency_max": 2})
        await stage.advance(120 * SECOND_MS)
        assert stage.leases() == {}
        assert standing(stage) == {}


async def test_a_leak_would_be_found(stage: MemoryStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault planted on purpose: every third permit is not given back. The judge, which reads topics only, sees it."""
    asks = itertools.count()
    tell = Permits._tell

    def forgetful(self: Permits, key: tuple[str, str], ask: Ask, scene: Scene) -> None:
        lost = ask.back and next(asks) % 3 == 0
        tell(self, key, Ask(ask.limiter, ask.tenant, ask.count, 0) if lost else ask, scene)

    monkeypatch.setattr(Permits, "_tell", forgetful)
    stage.configure(TENANT, {"concurrency_max": 4})
    Crew(stage).hire()
    put(stage, 12)
    await stage.advance(60 * SECOND_MS)
    assert leaked_permits(stage) > 0
