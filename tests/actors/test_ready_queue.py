"""Order of the backlog: tenants in turn, priority, due."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from noontide.actors.ready_queue import ReadyQueues
from noontide.core.run import Run, RunState


def _run(name: str, *, tenant: str = "t", priority: int = 5, due_ms: int = 0, lane: str = "default") -> Run:
    return Run(name, name, tenant, RunState.PENDING, due_ms, due_ms, due_ms, "handler:x", lane=lane, priority=priority)


def _queues(*runs: Run) -> ReadyQueues:
    queues = ReadyQueues()
    for number, run in enumerate(runs):
        queues.add(number % 3, run)
    return queues


def _names(taken: list[tuple[int, str]]) -> list[str]:
    return [name for _, name in taken]


def test_an_empty_lane_gives_nothing() -> None:
    queues = ReadyQueues()
    assert queues.take("default", 10) == []
    assert queues.lanes() == []


def test_the_partition_comes_back_with_the_run() -> None:
    assert _queues(_run("a"), _run("b")).take("default", 5) == [(0, "a"), (1, "b")]


def test_higher_priority_first_then_earlier_due_then_the_name() -> None:
    runs = [_run("d", due_ms=2), _run("c", due_ms=1), _run("b", due_ms=1), _run("a", priority=9, due_ms=9)]
    assert _names(_queues(*runs).take("default", 10)) == ["a", "b", "c", "d"]


def test_tenants_take_turns_across_calls() -> None:
    runs = [_run(f"x{number}", tenant="x") for number in range(5)] + [
        _run(f"y{number}", tenant="y") for number in (0, 1)
    ]
    queues = _queues(*runs)
    taken = [name for _ in range(7) for name in _names(queues.take("default", 1))]
    assert taken == ["x0", "y0", "x1", "y1", "x2", "x3", "x4"]


def test_one_that_comes_back_waits_for_its_turn() -> None:
    queues = _queues(_run("x0", tenant="x"), _run("x1", tenant="x"), _run("y0", tenant="y"))
    assert _names(queues.take("default", 2)) == ["x0", "y0"]
    queues.add(0, _run("y1", tenant="y"))
    assert _names(queues.take("default", 2)) == ["x1", "y1"]


def test_lanes_are_apart() -> None:
    queues = _queues(_run("a"), _run("b", lane="bulk"))
    assert sorted(queues.lanes()) == ["bulk", "default"]
    assert _names(queues.take("bulk", 5)) == ["b"]
    assert queues.lanes() == ["default"]


def test_nothing_is_taken_when_there_is_no_room() -> None:
    queues = _queues(_run("a"))
    assert queues.take("default", 0) == []
    assert queues.lanes() == ["default"]


runs = st.builds(
    _run,
    st.text("abc", min_size=1, max_size=4),
    tenant=st.sampled_from("xyz"),
    priority=st.integers(0, 9),
    due_ms=st.integers(0, 5),
)


@given(added=st.lists(runs, max_size=40), limits=st.lists(st.integers(0, 7), max_size=30))
def test_each_is_taken_once_in_order_and_no_tenant_waits_for_more_than_one_of_each_other(
    added: list[Run], limits: list[int]
) -> None:
    queues = _queues(*added)
    taken = [name for limit in [*limits, 100] for name in _names(queues.take("default", limit))]
    assert Counter(taken) == Counter(run.run_id for run in added)
    places = [(run.tenant, -run.priority, run.due_ms, run.run_id) for run in added]
    for tenant in "xyz":
        of_tenant = sorted(place[1:] for place in places if place[0] == tenant)
        if all(run.run_id not in {p[3] for p in places if p[0] != tenant} for run in added if run.tenant == tenant):
            names = {place[2] for place in of_tenant}
            assert [name for name in taken if name in names] == [place[2] for place in of_tenant]


def test_tenants_have_turns_by_their_weights() -> None:
    runs = [_run(f"{tenant}{number:02}", tenant=tenant) for tenant in "xyz" for number in range(20)]
    queues = _queues(*runs)
    weights = {"x": 3.0, "y": 1.0, "z": 0.5}
    taken = _names(queues.take("default", 18, weights.__getitem__))
    assert Counter(name[0] for name in taken) == {"x": 12, "y": 4, "z": 2}


def test_a_tenant_that_comes_later_gets_its_part_and_nothing_for_the_past() -> None:
    queues = _queues(*(_run(f"x{number:02}", tenant="x") for number in range(50)))
    queues.take("default", 30)
    for number in range(10):
        queues.add(0, _run(f"y{number}", tenant="y"))
    assert Counter(name[0] for name in _names(queues.take("default", 10))) == {"x": 5, "y": 5}


def test_waiting_raises_the_priority() -> None:
    old = _run("old", priority=2)._replace(claimed_ms=0)
    young, younger = (_run(name, priority=5)._replace(claimed_ms=at) for name, at in (("a", 179_999), ("b", 180_001)))
    assert _names(_queues(old, young, younger).take("default", 3)) == ["a", "old", "b"]
