"""The command behind ./scripts/simulate."""

from __future__ import annotations

import json
import sys
import time

import click

from noontide.testing.simulation.bugs import BUGS
from noontide.testing.simulation.cluster import Result
from noontide.testing.simulation.many import Task, simulate_many, tasks_for, totals


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", type=click.IntRange(min=1), default=500, show_default=True, help="Simulate seeds 1 to N.")
@click.option("--seed", "chosen", type=int, multiple=True, help="Simulate this seed and tell its story; repeatable.")
@click.option("--bug", type=click.Choice(list(BUGS)), help="Plant a bug.")
@click.option("--bugs", "all_bugs", is_flag=True, help="Plant each bug in turn, until a seed finds it.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def main(*, seeds: int, chosen: tuple[int, ...], bug: str | None, all_bugs: bool, as_json: bool) -> None:
    """Run the whole cluster in one process and in virtual time; one seed chooses all that happens.

    Exit code 1 when a promise was broken (with --bugs: when a bug was not found).
    """
    if all_bugs:
        sys.exit(not _find_bugs(seeds, as_json=as_json))
    named = [Task(seeds=(seed,), bug=bug, tells=True) for seed in chosen]
    tasks = named or tasks_for(seeds, bug=bug)
    sys.exit(not _judge(tasks, as_json=as_json))


def _judge(tasks: list[Task], *, as_json: bool) -> bool:
    began_s = time.perf_counter()
    results = [result for _, found in simulate_many(tasks) for result in found]
    broken = sorted((result for result in results if result.violation is not None), key=lambda each: each.seed)
    report = {"seeds": len(results), "broken": [each.seed for each in broken], **totals(results)}
    if as_json:
        found = [{"seed": each.seed, "checker": each.checker, "violation": each.violation} for each in broken]
        print(json.dumps(report | {"violations": found}))
        return not broken
    for result in results if tasks[0].tells else broken[:1]:
        _tell(result)
    for result in broken:
        print(f"seed {result.seed}: {_verdict(result)}")
        print(f"    again: ./scripts/simulate --seed {result.seed}{_with_bug(tasks)}")
    counts = ", ".join(f"{count:,} {name}" for name, count in report.items() if isinstance(count, int))
    print(f"{counts}; {len(broken)} broken promises; {time.perf_counter() - began_s:.0f} s")
    return not broken


def _with_bug(tasks: list[Task]) -> str:
    return "" if tasks[0].bug is None else f" --bug {tasks[0].bug}"


def _tell(result: Result) -> None:
    for line in result.story:
        print(line)
    print(f"seed {result.seed}: {result.steps:,} steps, {result.virtual_ms / 1000:.1f} s: {_verdict(result)}")


def _verdict(result: Result) -> str:
    return "all promises kept" if result.violation is None else f"{result.checker}: {result.violation}"


def _find_bugs(seeds: int, *, as_json: bool) -> bool:
    """A table: which seed found which bug, after how many steps, by which checker."""
    tasks = [Task(seeds=tuple(range(1, seeds + 1)), bug=name, until_found=True) for name in BUGS]
    found = {str(task.bug): results[-1] for task, results in simulate_many(tasks)}
    rows = [
        {
            "bug": name,
            "about": bug.about,
            "seed": found[name].seed if found[name].violation is not None else None,
            "steps": found[name].steps,
            "checker": found[name].checker,
        }
        for name, bug in BUGS.items()
    ]
    missed = [row["bug"] for row in rows if row["seed"] is None]
    if as_json:
        print(json.dumps({"bugs": rows, "missed": missed}))
        return not missed
    print(f"{'bug':26} {'seed':>5} {'steps':>7}  {'checker':20} what is wrong")
    for row in rows:
        seed = "-" if row["seed"] is None else row["seed"]
        print(f"{row['bug']:26} {seed:>5} {row['steps']:>7}  {row['checker'] or 'NOT FOUND':20} {row['about']}")
    return not missed


if __name__ == "__main__":
    main()
