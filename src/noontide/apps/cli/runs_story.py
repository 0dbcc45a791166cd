"""`noontide runs show`: the whole story of a run, from its claim to its last end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click
import orjson

from noontide.apps.cli.common import Cluster, Fault, broker_options, json_option
from noontide.apps.cli.spans import words
from noontide.apps.cli.tables import show_json, show_pairs, show_table, utc
from noontide.core.errors import InvalidDefinition

if TYPE_CHECKING:
    from noontide.apps.cli.runs_records import Fields, Story
    from noontide.core.run import Run

ATTEMPT_HEADS: Final = ("attempt", "token", "worker", "queued (UTC)", "started (UTC)", "took", "outcome", "error")
RESULT_SHOWN: Final = 1_000
_FAILED: Final = ("max_attempts", "permanent")
"""What histories call attempts that ended with an error: by what would end the run."""
_LEFT_OUT: Final = ("job", "attempts", "history")


@click.command()
@click.argument("run_id")
@json_option
@broker_options
def show(run_id: str, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """Show the whole story of a run: what it is, its attempts, how it ended, and what it brought back."""
    from noontide.apps.cli.reading import Reader
    from noontide.apps.cli.runs_records import story_of

    try:
        story = story_of(Reader(connection=cluster.connection(), layout=cluster.layout()), run_id)
    except InvalidDefinition as refused:
        raise click.UsageError(f"{run_id!r} {refused.problems[0].message}") from refused
    if not story:
        raise Fault(f"there is no trace of {run_id!r}: never claimed, or its records are gone (7 days after its end)")
    if as_json:
        show_json(_as_json(story))
        return
    show_pairs(dict(_pairs(story)))
    if found := attempts_of(story):
        click.echo()
        show_table(ATTEMPT_HEADS, map(_attempt_row, found), empty="")


def attempts_of(story: Story) -> list[Fields]:
    """All starts that are known, by token: earlier ones from histories, the latest from the run or its end."""
    found: dict[int, Fields] = {}
    texts = [each.get("attempts") for each in (*story.executions, *story.dead_letters)]
    if story.live is not None:
        texts.append(f"[{story.live.history}]")
    for text in filter(None, texts):
        for attempt in orjson.loads(str(text)):
            found[attempt["token"]] = attempt
    for latest in _latest(story):
        found.setdefault(int(str(latest["token"])), latest)
    return [found[token] for token in sorted(found)]


def _latest(story: Story) -> Iterator[Fields]:
    """The starts that no history tells of: those that ended well, were cancelled, or go on."""
    from noontide.core.instants import parse_instant

    for execution in story.executions:
        if "started_at" in execution:
            named = {name: execution.get(name) for name in ("attempt", "token", "worker")}
            instants = {
                name: parse_instant(execution[field], zone=None, pointer=f"/{field}")
                for name, field in (("queued", "queued_at"), ("granted", "started_at"), ("ended", "ended_at"))
                if field in execution
            }
            yield {**named, **instants, "reason": execution["state"]}
    run = story.live
    if run is not None and run.state == "running":
        named = {"attempt": run.attempt, "token": run.token, "worker": run.worker}
        yield {**named, "queued": run.queued_ms, "granted": run.granted_ms, "reason": "running"}


def _pairs(story: Story) -> Iterator[tuple[str, str]]:
    known = _known(story)
    yield "run", story.run_id
    yield "job", f"{known['job_id']} (tenant {known['tenant']})"
    if known.get("target"):
        yield "target", str(known["target"])
    yield "due (UTC)", str(known["due"])
    if known.get("start_after"):
        yield "starts (UTC)", str(known["start_after"])
    for execution in story.executions:
        yield _ended_name(execution, story), _sentence(execution)
    if story.live is not None:
        yield "now", state_in_words(story.live)
    if story.results:
        yield from _result(story.results[-1])


def _known(story: Story) -> Mapping[str, object]:
    """What does not change about a run, from wherever it is told."""
    if story.executions:
        return story.executions[-1]
    run = story.live
    if run is not None:
        known = {"job_id": run.job_id, "tenant": run.tenant, "due": utc(run.due_ms), "target": run.target}
        return known | ({"start_after": utc(run.start_ms)} if run.start_ms != run.due_ms else {})
    (told, *_) = (*story.dead_letters, *story.results)
    due = told["due"]
    return {**told, "due": utc(due) if isinstance(due, int) else due}


def _ended_name(execution: Fields, story: Story) -> str:
    """Of a run that ended several times, since it was redriven, the ends are numbered."""
    if len(story.executions) == 1:
        return "ended (UTC)"
    return f"end {story.executions.index(execution) + 1} (UTC)"


def _sentence(execution: Fields) -> str:
    parts = [str(execution.get("ended_at", "")), str(execution["state"])]
    if execution.get("reason"):
        parts.append(str(execution["reason"]))
    return "  ".join(parts)


def state_in_words(run: Run) -> str:
    """`running on w-1 since 3 s, attempt 2`, `retry_wait for 12 s, after attempt 1: HTTP 503`."""
    from noontide.adapters.system_clock import wall_now_ms

    now_ms = wall_now_ms()
    since = words(max(now_ms - since_ms(run), 0))
    told = f"{run.state} on {run.worker} for {since}" if run.worker else f"{run.state} for {since}"
    if run.attempt:
        told += f", attempt {run.attempt}"
    if run.state == "retry_wait" and run.not_before_ms > now_ms:
        told += f", goes again in {words(run.not_before_ms - now_ms)}"
    asked = f"; asked to stop: {run.cancel}" if run.cancel else ""
    return told + (f": {run.reason}" if run.reason else "") + asked


def since_ms(run: Run) -> int:
    """Since when a live run is in its state, as far as it says so: grant, offer, end of the last attempt, or claim."""
    if run.state == "running":
        return run.granted_ms
    if run.state == "queued" and run.queued_ms:  # earlier versions did not write it
        return run.queued_ms
    ended = [attempt["ended"] for attempt in orjson.loads(f"[{run.history}]")]
    return int(ended[-1]) if ended else run.claimed_ms


def _result(result: Fields) -> Iterator[tuple[str, str]]:
    for name in ("result", "error"):
        if name in result:
            value = result[name]
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            cut = f" ... ({len(text):,} characters)" if len(text) > RESULT_SHOWN else ""
            yield name, text[:RESULT_SHOWN] + cut + (" (truncated)" if result.get("truncated") else "")


def _attempt_row(attempt: Fields) -> tuple[str, ...]:
    granted, ended, outcome = attempt.get("granted"), attempt.get("ended"), str(attempt.get("reason", ""))
    took = words(ended - granted) if isinstance(granted, int) and isinstance(ended, int) and granted else ""
    return (
        str(attempt.get("attempt", "")),
        str(attempt.get("token", "")),
        str(attempt.get("worker") or ""),
        *(utc(at) if isinstance(at, int) and at else "" for at in (attempt.get("queued"), granted)),
        took,
        "failed" if outcome in _FAILED else outcome,
        str(attempt.get("error") or ""),
    )


def _as_json(story: Story) -> dict[str, object]:
    live = story.live
    return {
        "run_id": story.run_id,
        "live": None if live is None else {
            name: value for name, value in live._asdict().items() if value is not None and name not in _LEFT_OUT
        },
        "attempts": attempts_of(story),
        "executions": [_without(each) for each in story.executions],
        "results": list(story.results),
        "dead_letters": [_without(each) for each in story.dead_letters],
    }  # fmt: skip


def _without(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name not in _LEFT_OUT}
