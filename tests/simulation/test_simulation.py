"""The whole cluster in virtual time, by many seeds: every promise is kept, and planted bugs do not hide."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from noontide.testing.simulation.bugs import BUGS
from noontide.testing.simulation.cluster import Result
from noontide.testing.simulation.loop import Endless, Process, VirtualLoop
from noontide.testing.simulation.many import Task, simulate_many, tasks_for, totals

SEEDS = 500
KNOWN = Path(__file__).with_name("seeds.txt")
HIDDEN = {"trust-any-copy", "deaf-at-take-over", "lose-what-is-granted", "count-time-away", "start-twice"}
"""Bugs that need a rare coincidence: fifty seeds and more."""
EASY_SEEDS = 100


def _known() -> list[int]:
    lines = KNOWN.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def _simulate(tasks: list[Task]) -> list[Result]:
    return [result for _, results in simulate_many(tasks) for result in results]


def _broken(results: list[Result]) -> list[str]:
    return [
        f"{result.checker}: {result.violation}; again: ./scripts/simulate --seed {result.seed}"
        for result in results
        if result.violation is not None
    ]


def test_every_promise_is_kept_whatever_happens() -> None:
    results = _simulate(tasks_for(SEEDS))
    print(totals(results))
    assert _broken(results) == []
    assert len(results) == SEEDS
    happened = totals(results)
    for what in ("crashes", "fences", "take_overs", "timeouts", "leases_lost", "indexes_compared"):
        assert happened[what] > SEEDS // 10, f"{what}: hardly ever; the simulation has become tame"


def test_seeds_that_once_broke_a_promise() -> None:
    assert _broken(_simulate([Task(seeds=tuple(_known()))])) == []


@pytest.mark.parametrize("pause_s", [0, 0.0001])
def test_who_is_busy_without_end_is_found_and_named(pause_s: float) -> None:
    async def turn() -> None:
        while True:  # noqa: ASYNC110 - it waits for nothing
            await asyncio.sleep(pause_s)

    loop = VirtualLoop(Random(1))  # type: ignore[abstract]  # it has what is used
    Process(loop, "mill").spawn(turn())
    with pytest.raises(Endless, match="the busiest is mill"):
        loop.run_until_complete(asyncio.sleep(60))
    loop.close()
    assert loop.tasks == []


def test_a_seed_gives_the_same_steps_again() -> None:
    first, second, other = _in_order([(7,), (8, 7), (9,)])
    assert (first.steps, first.story, first.counts) == (second.steps, second.story, second.counts)
    assert first.story != other.story


def _in_order(pieces: list[tuple[int, ...]]) -> list[Result]:
    """The last result of each piece."""
    found = {
        task.seeds: results[-1] for task, results in simulate_many([Task(seeds=each, tells=True) for each in pieces])
    }
    return [found[each] for each in pieces]


def _unfound(names: list[str], seeds: int) -> list[str | None]:
    tasks = [Task(seeds=tuple(range(1, seeds + 1)), bug=name, until_found=True) for name in names]
    return [task.bug for task, results in simulate_many(tasks) if results[-1].violation is None]


def test_planted_bugs_are_found() -> None:
    names = [name for name in BUGS if name not in HIDDEN]
    assert len(names) >= 12
    assert _unfound(names, EASY_SEEDS) == []


@pytest.mark.slow
def test_planted_bugs_that_hide_are_found() -> None:
    assert _unfound(sorted(HIDDEN), SEEDS) == []
