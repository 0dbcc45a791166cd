"""Many simulations, on all cores: each seed in a process whose hashes of texts are the same every time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Final

from noontide.testing.simulation.bugs import planted
from noontide.testing.simulation.cluster import Result, simulate

CHUNK: Final = 10
STORY_LINES: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Seeds to simulate one after the other, with a bug planted or not. until_found: stop at the first violation."""

    seeds: tuple[int, ...]
    bug: str | None = None
    until_found: bool = False
    tells: bool = False


def perform(task: Task) -> list[Result]:
    """Simulate; for a process of its own. The story is kept of violations, or when it is asked for."""
    results = []
    with planted(task.bug):
        for seed in task.seeds:
            result = simulate(seed)
            keeps = task.tells or result.violation is not None
            results.append(replace(result, story=result.story[-STORY_LINES:] if keeps else ()))
            if task.until_found and result.violation is not None:
                break
    return results


def simulate_many(tasks: Iterable[Task]) -> Iterator[tuple[Task, list[Result]]]:
    """Perform tasks on all cores; in the order in which they are done."""
    os.environ["PYTHONHASHSEED"] = "0"  # of the processes that are spawned: sets of texts keep one order
    tasks = list(tasks)
    workers = max(1, min(len(tasks), os.cpu_count() or 1))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(perform, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()


def tasks_for(seeds: int, *, bug: str | None = None) -> list[Task]:
    """Seeds 1 .. `seeds` in pieces."""
    pieces = (range(first, min(first + CHUNK, seeds + 1)) for first in range(1, seeds + 1, CHUNK))
    return [Task(seeds=tuple(piece), bug=bug) for piece in pieces]


def totals(results: Iterable[Result]) -> dict[str, int]:
    """What happened in all of them together."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
        counts["steps"] += result.steps
        counts["virtual_s"] += result.virtual_ms // 1_000
    return dict(sorted(counts.items()))
