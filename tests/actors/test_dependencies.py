"""Jobs that wait for others: all upstreams of one logical time, what follows from the ends of these, and cycles."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from tests.actors.lines import HOUR_MS, SECOND_MS, history, reasons
from tests.actors.workers import handler

from noontide.actors.effects import Scene
from noontide.actors.joins import Joins
from noontide.actors.settings import SchedulerSettings
from noontide.core.cursor import JobState
from noontide.records.dependencies import JoinKey
from noontide.records.runs import Invitation
from noontide.records.topics import Layout
from noontide.records.worker_events import Outcome
from noontide.testing.builders import Document, every, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

Outcomes = Mapping[str, Work]
OK, FAILS, CANCELLED = Work(1_000), Work(1_000, Outcome.FAILED, "boom", permanent=True), Work(1_000, Outcome.CANCELLED)


@pytest.fixture
async def stage() -> AsyncIterator[MemoryStage]:
    """Four slots, so that jobs and their upstreams are often apart."""
    async with MemoryStage(layout=Layout(partitions=16, slots=4)) as stage:
        stage.register("orders")
        yield stage


def work(stage: MemoryStage, outcomes: Outcomes | None = None) -> Crew:
    """A worker that ends runs by the job they are of; what is not named succeeds after a second."""

    def does(run: Invitation) -> Work:
        return (outcomes or {}).get(run.job_id, OK)

    crew = Crew(stage)
    crew.hire(does=does)
    return crew


def after(job_id: str, *upstreams: str, **fields: object) -> Document:
    return handler(job_id, None, after=list(upstreams), **fields)


def states(stage: MemoryStage, *jobs: str) -> list[str]:
    """The last state of each job's history; '' without any."""
    lines = {str(line["job_id"]): str(line["state"]) for line in stage.executions()}
    return [lines.get(job, "") for job in jobs]


def line(stage: MemoryStage, job_id: str) -> dict[str, object]:
    (found,) = stage.executions(job_id)
    return found


async def test_a_job_runs_when_its_upstream_has_succeeded(stage: MemoryStage) -> None:
    work(stage)
    for job in (after("b", "a"), after("c", "b"), handler("a", once(START_MS + 5_000))):
        stage.put(job)
    await stage.advance(20 * SECOND_MS)
    assert states(stage, "a", "b", "c") == ["succeeded"] * 3
    assert {line(stage, job)["due"] for job in "abc"} == {line(stage, "a")["due"]}
    assert str(line(stage, "c")["run_id"]).removeprefix("c") == str(line(stage, "a")["run_id"]).removeprefix("a")


async def test_topics_are_links_of_a_chain_too(stage: MemoryStage) -> None:
    stage.put({"id": "b", "after": ["a"], "target": "kafka://orders"})
    stage.put({"id": "c", "after": ["b"], "target": "kafka://orders"})
    stage.put({"id": "a", "schedule": {"every": "PT10S"}, "timing": "exact", "target": "kafka://orders"})
    await stage.advance(25 * SECOND_MS)
    assert [history(stage, job) for job in "abc"] == [[(10.0, "succeeded"), (20.0, "succeeded")]] * 3


async def test_all_upstreams_of_one_time_are_waited_for(stage: MemoryStage) -> None:
    work(stage, {"slow": Work(7_000)})
    stage.put(after("c", "quick", "slow"))
    for name in ("quick", "slow"):
        stage.put(handler(name, every("PT10S", anchor_ms=START_MS)))
    await stage.advance(16 * SECOND_MS)
    assert states(stage, "quick", "slow", "c") == ["succeeded", "", ""]
    await stage.advance(20 * SECOND_MS)
    assert [due for due, _ in history(stage, "c")] == [10.0, 20.0]


@pytest.mark.parametrize(
    "end",
    ["failed", "cancelled", "skipped by overlap", "timed out"],
)
@pytest.mark.parametrize("rule", ["skip", "run"])
async def test_what_follows_when_an_upstream_did_not_succeed(stage: MemoryStage, end: str, rule: str) -> None:
    """dag-01: b and c have a final state by the documented rule at once."""
    ends = {"failed": FAILS, "cancelled": CANCELLED, "timed out": Work(None)}
    work(stage, {"a": ends.get(end, Work(15_000))})
    stage.put(after("b", "a", on_upstream_failure=rule))
    stage.put(after("c", "b"))
    fields: dict[str, object] = {"timeout": "PT3S", "retry": {"max_attempts": 1}} if end == "timed out" else {}
    if end == "skipped by overlap":
        stage.put(handler("a", every("PT10S", anchor_ms=START_MS)))
        await stage.advance(22 * SECOND_MS)  # the occurrence of 20 s is skipped while that of 10 s runs
        assert dict(history(stage, "b"))[20.0] == ("skipped" if rule == "skip" else "succeeded")
        return
    stage.put(handler("a", once(START_MS + 1_000), **fields))
    await stage.advance(30 * SECOND_MS)
    expected = ["skipped", "skipped"] if rule == "skip" else ["succeeded", "succeeded"]
    assert states(stage, "b", "c") == expected
    if rule == "skip":
        assert "upstream a was" in str(line(stage, "b")["reason"])
        assert line(stage, "c")["reason"] == "upstream: upstream b was skipped"


async def test_one_failure_decides_without_waiting_for_the_others(stage: MemoryStage) -> None:
    work(stage, {"bad": FAILS, "slow": Work(60_000)})
    stage.put(after("c", "bad", "slow"))
    stage.put(handler("bad", once(START_MS)))
    stage.put(handler("slow", once(START_MS)))
    await stage.advance(5 * SECOND_MS)
    assert states(stage, "c") == ["skipped"]
    await stage.advance(90 * SECOND_MS)
    assert [state for _, state in history(stage, "c")] == ["skipped"]


async def test_an_upstream_that_is_redriven_sets_its_dependants_going(stage: MemoryStage) -> None:
    outcomes = {"a": FAILS}
    work(stage, outcomes)
    stage.put(after("b", "a"))
    stage.put(after("c", "b"))
    stage.put(handler("a", once(START_MS)))
    await stage.advance(5 * SECOND_MS)
    assert states(stage, "a", "b", "c") == ["dead", "skipped", "skipped"]
    outcomes["a"] = OK
    stage.request("a", b'{"run_id":"%s"}' % str(line(stage, "a")["run_id"]).encode(), headers={"kind": "redrive"})
    await stage.advance(10 * SECOND_MS)
    assert states(stage, "a", "b", "c") == ["succeeded"] * 3


async def test_a_wait_has_a_deadline() -> None:
    settings = SchedulerSettings(upstream_wait_ms=60_000)
    async with MemoryStage(layout=Layout(partitions=16, slots=4), settings=settings) as stage:
        work(stage)
        stage.put(after("c", "a", "never"))
        stage.put(after("d", "a", "never", complete_by="PT20S"))
        stage.put(handler("a", once(START_MS)))
        await stage.advance(30 * SECOND_MS)
        assert states(stage, "c", "d") == ["", "skipped"]
        await stage.advance(40 * SECOND_MS)
        assert line(stage, "c")["reason"] == "waited too long for never"


async def test_own_time_and_upstreams_together(stage: MemoryStage) -> None:
    work(stage, {"a": Work(4_000)})
    stage.put(handler("a", every("PT10S", anchor_ms=START_MS)))
    stage.put(handler("b", every("PT20S", anchor_ms=START_MS), after=["a"]))
    await stage.advance(55 * SECOND_MS)
    assert history(stage, "b") == [(20.0, "succeeded"), (40.0, "succeeded")]
    starts = {str(each["due"]): str(each["started_at"]) for each in stage.executions("b")}
    assert all(start > due for due, start in starts.items())


async def test_many_passed_occurrences_at_once(stage: MemoryStage) -> None:
    work(stage)
    stage.put(after("b", "a"))
    stage.put(handler("a", every("PT10S", anchor_ms=START_MS)))
    await stage.advance(5 * SECOND_MS)
    await stage.jump(HOUR_MS)
    await stage.advance(8 * SECOND_MS)
    coalesced = next(each for each in stage.executions("a") if each["state"] == "coalesced")
    passed = next(each for each in stage.executions("b") if each["state"] == "skipped")
    assert (passed["due"], passed["until"], passed["count"]) == (
        coalesced["due"],
        coalesced["until"],
        coalesced["count"],
    )
    assert "succeeded" in states(stage, "b")


async def test_a_paused_job_says_so_and_its_dependants_are_told(stage: MemoryStage) -> None:
    work(stage)
    stage.put(after("b", "a", paused=True))
    stage.put(after("c", "b"))
    stage.put(handler("a", once(START_MS + 1_000)))
    await stage.advance(10 * SECOND_MS)
    assert states(stage, "b", "c") == ["skipped", "skipped"]
    assert line(stage, "b")["reason"] == "the job is paused"


async def test_a_job_that_is_paused_while_it_waits_does_not_run(stage: MemoryStage) -> None:
    work(stage, {"b": Work(10_000)})
    for job in (after("c", "a", "b"), after("d", "c"), *(handler(each, once(START_MS + 5_000)) for each in "ab")):
        stage.put(job)
    await stage.advance(8 * SECOND_MS)
    stage.put(after("c", "a", "b", paused=True))
    await stage.advance(20 * SECOND_MS)
    assert states(stage, "a", "b", "c", "d") == ["succeeded", "succeeded", "skipped", "skipped"]
    assert line(stage, "c")["reason"] == "the job is paused"


async def test_a_definition_that_waits_for_less_runs_when_that_is_there_already(stage: MemoryStage) -> None:
    work(stage, {"b": Work(10_000)})
    for job in (after("c", "a", "b"), *(handler(each, once(START_MS + 5_000)) for each in "ab")):
        stage.put(job)
    await stage.advance(8 * SECOND_MS)
    assert states(stage, "a", "c") == ["succeeded", ""]
    stage.put(after("c", "a"))
    await stage.advance(20 * SECOND_MS)
    assert [each["state"] for each in stage.executions("c")] == ["succeeded"]


async def test_waits_of_several_times_do_not_pass_max_runs(stage: MemoryStage) -> None:
    work(stage, {"b": Work(25_000)})
    stage.put(handler("a", {"every": "PT10S"}, timing="exact", max_runs=2))
    stage.put(handler("b", {"every": "PT10S"}, timing="exact", max_runs=2, overlap="allow"))
    stage.put(after("c", "a", "b", max_runs=1))
    await stage.advance(80 * SECOND_MS)
    assert [each["state"] for each in stage.executions("c")] == ["succeeded"]


async def test_runs_by_hand_set_nobody_going(stage: MemoryStage) -> None:
    work(stage)
    stage.put(after("b", "a"))
    stage.put(handler("a", every("PT1H")))
    stage.trigger("a")
    await stage.advance(10 * SECOND_MS)
    assert states(stage, "a", "b") == ["succeeded", ""]


async def test_max_runs_of_a_job_that_follows(stage: MemoryStage) -> None:
    work(stage)
    stage.put(after("b", "a", max_runs=2))
    stage.put(handler("a", every("PT10S", anchor_ms=START_MS)))
    await stage.advance(55 * SECOND_MS)
    assert [due for due, _ in history(stage, "b")] == [10.0, 20.0]
    cursor = stage.cursor("b")
    assert cursor is not None
    assert cursor.state is JobState.COMPLETED


async def test_edges_come_and_go_with_definitions(stage: MemoryStage) -> None:
    work(stage)
    stage.put(after("b", "a"))
    stage.put(handler("a", every("PT10S", anchor_ms=START_MS)))
    stage.put(handler("z", every("PT10S", anchor_ms=START_MS)))
    await stage.advance(15 * SECOND_MS)
    stage.put(after("b", "z"))
    await stage.advance(10 * SECOND_MS)
    stage.delete("b")
    await stage.advance(10 * SECOND_MS)
    assert [due for due, _ in history(stage, "b")] == [10.0, 20.0]
    ties = [each.slot.exchange.ties for each in stage.slots]
    assert not any(each.dependants or each.after for each in ties)


async def test_a_missing_upstream_is_said_so_until_it_is_there(stage: MemoryStage) -> None:
    work(stage)
    stage.put(after("b", "a", "missing"))
    stage.put(handler("a", every("PT1H")))
    await stage.run_until_idle()
    cursor = stage.cursor("b")
    assert cursor is not None
    assert cursor.reason == "waits for jobs that do not exist: missing"
    stage.put(handler("missing", every("PT1H")))
    await stage.run_until_idle()
    cursor = stage.cursor("b")
    assert cursor is not None
    assert cursor.reason is None
    stage.delete("missing")
    await stage.run_until_idle()
    cursor = stage.cursor("b")
    assert cursor is not None
    assert cursor.reason == "waits for jobs that do not exist: missing"


async def test_a_job_of_another_tenant_does_not_exist(stage: MemoryStage) -> None:
    work(stage)
    stage.put(handler("a", every("PT10S", anchor_ms=START_MS), tenant="x"))
    stage.put(after("b", "a", tenant="y"))
    await stage.advance(25 * SECOND_MS)
    assert history(stage, "b") == []
    cursor = stage.cursor("b")
    assert cursor is not None
    assert cursor.reason == "waits for jobs that do not exist: a"


@pytest.mark.parametrize("graph", [{"a": ["a"]}, {"a": ["b"], "b": ["a"]}, {"a": ["b"], "b": ["c"], "c": ["a"]}])
async def test_a_cycle_is_refused_or_blocked(stage: MemoryStage, graph: dict[str, list[str]]) -> None:
    """dag-03: through Kafka a cycle that can be seen is rejected with its path, any other is found and blocked."""
    for name, upstreams in graph.items():
        stage.put(after(name, *upstreams))
        await stage.run_until_idle()
    cursors = {name: stage.cursor(name) for name in graph}
    blocked = [each for each in cursors.values() if each is not None and each.state is JobState.BLOCKED]
    assert len(blocked) + len(stage.rejected()) == 1
    if blocked:
        assert str(blocked[0].reason).startswith("cycle: ")
        assert len(str(blocked[0].reason).split(" → ")) == len(graph) + 1
    elif len(graph) > 1:
        assert "/after: would make a cycle: b → a → b" in reasons(stage)[0]


@pytest.mark.parametrize("order", list(itertools.permutations("abcd")))
async def test_a_cycle_of_four_in_any_order_and_all_at_once(stage: MemoryStage, order: Sequence[str]) -> None:
    waits_for = dict(zip("abcd", "bcda", strict=True))
    for name in order:
        stage.put(after(name, waits_for[name]))
    await stage.run_until_idle()
    cursors = [stage.cursor(name) for name in order]
    blocked = sum(each is not None and each.state is JobState.BLOCKED for each in cursors)
    assert blocked + len(stage.rejected()) >= 1


async def test_a_blocked_job_is_released_by_a_definition_without_the_cycle(stage: MemoryStage) -> None:
    work(stage)
    for name, upstream in (("a", "b"), ("b", "c"), ("c", "a")):
        stage.put(after(name, upstream))
        await stage.run_until_idle()
    stage.put(handler("c", every("PT10S", anchor_ms=START_MS)))
    await stage.advance(20 * SECOND_MS)
    assert states(stage, "a", "b", "c") == ["succeeded"] * 3


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_crashes_lose_and_double_nothing(stage: MemoryStage, from_log_alone: bool) -> None:
    work(stage)
    stage.put(after("d", "b", "c"))
    stage.put(after("b", "a"))
    stage.put(after("c", "a"))
    stage.put(handler("a", every("PT10S", anchor_ms=START_MS)))
    for number in range(70):
        await stage.advance(700)
        if number % 5 == 0:
            stage.fail_next_commit(took_effect=number % 2 == 0, slot=number % 4)
        if number % 9 == 0:
            await stage.crash(from_log_alone=from_log_alone)
    await stage.advance(10 * SECOND_MS)
    for job in "abcd":
        dues = [due for due, _ in history(stage, job)]
        assert dues == sorted(set(dues))
        assert set(dues) >= {10.0, 20.0, 30.0, 40.0}
    assert {state for job in "abcd" for _, state in history(stage, job)} == {"succeeded"}


async def test_a_diamond(stage: MemoryStage) -> None:
    crew = work(stage, {"b": Work(3_000)})
    for job in (after("d", "b", "c"), after("b", "a"), after("c", "a"), handler("a", once(START_MS))):
        stage.put(job)
    await stage.advance(20 * SECOND_MS)
    order = [start.run_id.partition(":")[0] for start in crew.workers[0].starts]
    assert order[0] == "a"
    assert order[-1] == "d"
    assert sorted(order) == ["a", "b", "c", "d"]


async def test_a_subtree_runs_again_for_a_logical_time(stage: MemoryStage) -> None:
    """Root a, below it b and c, below these d; e is not told to take part, x is an upstream outside of the subtree."""
    work(stage)
    for job in (after("b", "a"), after("c", "a"), after("d", "b", "c", "x"), after("e", "a")):
        stage.put(job)
    for root in ("a", "x"):
        stage.put(handler(root, once(START_MS + 1_000)))
    await stage.advance(20 * SECOND_MS)
    assert states(stage, *"abcdex") == ["succeeded"] * 6
    stage.trigger("a", due="2026-03-01T00:00:01Z", members=["a", "b", "c", "d"])
    await stage.advance(20 * SECOND_MS)
    again = {job: stage.executions(job)[1:] for job in "abcdex"}
    assert [len(again[job]) for job in "abcdex"] == [1, 1, 1, 1, 0, 0]
    assert {each["due"] for lines in again.values() for each in lines} == {stage.executions("a")[0]["due"]}
    assert all(str(each["run_id"]).startswith(f"{job}:m") for job, lines in again.items() for each in lines)
    ties = [each.slot.exchange.ties for each in stage.slots]
    assert not any(each.waves or each.joins for each in ties)


async def test_what_cannot_be_handled_is_set_aside(stage: MemoryStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job whose waits cannot be decided about holds up nobody else."""
    work(stage)
    stage.put(after("bad", "a"))
    stage.put(after("good", "a"))
    stage.put(handler("a", once(START_MS + 1_000)))
    await stage.run_until_idle()
    waiter = Joins._waiter

    def failing(self: Joins, key: JoinKey, scene: Scene) -> object:
        if key.job_id == "bad":
            raise RuntimeError("no")
        return waiter(self, key, scene)

    monkeypatch.setattr(Joins, "_waiter", failing)
    await stage.advance(10 * SECOND_MS)
    assert states(stage, "bad", "good") == ["", "succeeded"]
    assert sum(each.slot.counts["set_aside"] for each in stage.slots) == 1


async def test_dependants_of_a_job_that_was_created_anew_run_under_ids_of_their_own(stage: MemoryStage) -> None:
    Crew(stage).hire()
    stage.put(handler("a", once(START_MS + 1_000)))
    stage.put(handler("b", None, after=["a"]))
    stage.put(handler("c", None, after=["b"]))
    await stage.advance(5_000)
    stage.delete("a")
    await stage.run_until_idle()
    stage.put(handler("a", once(START_MS + 1_000)))  # in the past: at once, as another run
    await stage.advance(5_000)
    for job_id in ("a", "b", "c"):
        runs = [(line["run_id"], line["state"]) for line in stage.executions(job_id)]
        assert runs == [(f"{job_id}:20260301T000001Z{suffix}", "succeeded") for suffix in ("", "~2")]
