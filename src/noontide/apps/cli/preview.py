"""`noontide preview`: when would this run? Nothing is stored and no broker is asked.

Three ways in: an expression, a file of definitions, or JSON Lines for programs (`--batch`). All of them
ask `core.occurrence`, as the scheduler does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NoReturn, TypedDict, Unpack

import click
import orjson

from noontide.adapters.system_clock import wall_now_ms
from noontide.core.dst import LAST_MS, parse_dst
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_instant, parse_instant
from noontide.core.occurrence import EXACT, Entry, Timeline, Timing, explain, parse_timing, spread_offset
from noontide.core.schedule import Schedule, ScheduleContext, parse_schedule

COUNT_MAX = 10_000
"""Most times one preview shows."""
_KINDS = {"cron": "cron", "interval": "every", "run_at": "at"}
_FIELDS_OF_ROW = {"schedule/every": "interval", "schedule/at": "run_at"}


class Options(TypedDict):
    """What the command line gave."""

    expression: str | None
    timezone: str
    count: int
    after: str | None
    seconds: bool
    gap: str
    repeat: str
    job_id: str
    json_output: bool
    file: str | None
    batch: BinaryIO | None


@click.command("preview")
@click.argument("expression", required=False)
@click.option("--timezone", default="UTC", show_default=True, help="IANA name, such as Europe/Berlin.")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=10, show_default=True, help="How many times.")
@click.option("--after", help="Times later than this instant (RFC 3339, or local time in the zone); default: now.")
@click.option("--seconds", is_flag=True, help="The expression has a field for seconds in front.")
@click.option("--gap", default="next_valid", show_default=True, help="next_valid, shift or skip.")
@click.option("--repeat", default="first", show_default=True, help="first, second or both.")
@click.option("--id", "job_id", default="preview", show_default=True, help="Job id, which H and the spread depend on.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False), help="Definitions, in YAML or JSON.")
@click.option("--batch", type=click.File("rb"), help="JSON Lines in, JSON Lines out; - is standard input.")
def preview(**options: Unpack[Options]) -> None:
    """Show when EXPRESSION, or each definition of a file, would run.

    EXPRESSION is a cron expression, or a schedule as JSON such as '{"every": "PT15M"}'.
    """
    ways = [name for name in ("expression", "file", "batch") if options[name] is not None]
    if len(ways) != 1:
        raise click.UsageError("give one of EXPRESSION, --file and --batch")
    if options["batch"] is not None:
        for answer in answers(options["batch"]):
            sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
            sys.stdout.buffer.flush()
        return
    try:
        asked = _from_file(options) if options["file"] is not None else [_from_expression(options)]
        _show([_previewed(each) for each in asked], json_output=options["json_output"])
    except InvalidDefinition as refused:
        _fail(refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question: whose times, after when, and how many."""

    job_id: str
    timeline: Timeline
    after_ms: int
    count: int
    remark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """A question and its answer."""

    asked: Asked
    entries: list[Entry]


def answers(lines: Iterable[bytes]) -> Iterator[dict[str, object]]:
    """One answer for each line that is not blank: its times, or its error. A bad line never stops the rest."""
    for line in lines:
        if line.strip():
            yield _answer(line)


def _answer(line: bytes) -> dict[str, object]:
    row_id: object = None
    try:
        row = _row(line)
        row_id = row.get("id")
        asked = _from_row(row)
        times = list(_due_times(asked))
    except InvalidDefinition as refused:
        return {"id": row_id, "error": _row_error(refused)}
    answer: dict[str, object] = {"id": row_id, "times": [_short(due_ms) for due_ms in times]}
    if asked.timeline.spread_ms:
        answer["starts"] = [_short(due_ms + asked.timeline.spread_ms) for due_ms in times]
    return answer


def _due_times(asked: Asked) -> Iterator[int]:
    after_ms = asked.after_ms
    for _ in range(asked.count):
        found = asked.timeline.next_after(after_ms)
        if found is None:
            return
        after_ms = found.due_ms
        yield after_ms


def _row(line: bytes) -> Mapping[str, object]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidDefinition.of("", f"not a line of JSON: {error}") from None
    if not isinstance(row, dict):
        raise InvalidDefinition.of("", "each line is a JSON object")
    return row


def _row_error(refused: InvalidDefinition) -> dict[str, str]:
    """The first problem, with the field named as the row names it."""
    problem = refused.problems[0]
    field = problem.pointer.removeprefix("/")
    for inner, outer in _FIELDS_OF_ROW.items():
        field = field.replace(inner, outer)
    return {"field": field.removeprefix("schedule/"), "message": problem.message}


def _from_row(row: Mapping[str, object]) -> Asked:
    kinds = [kind for kind in _KINDS if row.get(kind) is not None]
    if len(kinds) != 1:
        raise InvalidDefinition.of("", "give exactly one of cron, interval and run_at")
    value = {_KINDS[kinds[0]]: row[kinds[0]]}
    companion = {"cron": "seconds", "interval": "anchor"}.get(kinds[0])
    if companion is not None and row.get(companion) is not None:
        value[companion] = row[companion]
    zone = _zone_name(row)
    after_ms = _after_ms(row.get("after"), zone=zone)
    job_id = str(row.get("id"))
    dst = parse_dst(row.get("dst"), "/dst")
    schedule = parse_schedule(
        value, context=ScheduleContext(timezone=zone, dst=dst, job_id=job_id, created_ms=after_ms)
    )
    timing = EXACT if row.get("timing") is None else parse_timing(row["timing"], schedule=schedule, pointer="/timing")
    timeline = _timeline(schedule, zone=zone, job_id=job_id, timing=timing)
    return Asked(job_id=job_id, timeline=timeline, after_ms=after_ms, count=_count(row.get("count", 10)))


def _from_expression(options: Options) -> Asked:
    expression = options["expression"] or ""
    value: object = {"cron": expression, "seconds": options["seconds"]}
    if expression.lstrip().startswith("{"):
        value = _row(expression.encode("utf-8", "surrogateescape"))
    zone, job_id = options["timezone"], options["job_id"]
    after_ms = _after_ms(options["after"], zone=zone)
    dst = parse_dst({"gap": options["gap"], "repeat": options["repeat"]}, "/dst")
    schedule = parse_schedule(
        value, context=ScheduleContext(timezone=zone, dst=dst, job_id=job_id, created_ms=after_ms)
    )
    timeline = _timeline(schedule, zone=zone, job_id=job_id, timing=EXACT)
    return Asked(job_id=job_id, timeline=timeline, after_ms=after_ms, count=options["count"])


def _from_file(options: Options) -> list[Asked]:
    after_ms = _after_ms(options["after"], zone=options["timezone"])
    asked = []
    for number, definition in enumerate(_definitions(Path(options["file"] or "")), start=1):
        if not isinstance(definition, Mapping):
            raise InvalidDefinition.of("", f"definition {number} is not an object")
        try:
            asked.append(_from_definition(definition, after_ms=after_ms, count=options["count"]))
        except InvalidDefinition as refused:
            name = definition.get("id", f"definition {number}")
            problems = tuple(replace(each, message=f"{each.message} ({name})") for each in refused.problems)
            raise InvalidDefinition(problems) from None
    return asked


def _from_definition(definition: Mapping[str, object], *, after_ms: int, count: int) -> Asked:
    """The schedule of a full definition; its other fields are not looked at."""
    zone, job_id = _zone_name(definition), str(definition.get("id", "preview"))
    context = ScheduleContext(
        timezone=zone, dst=parse_dst(definition.get("dst"), "/dst"), job_id=job_id, created_ms=after_ms
    )
    schedule = _schedule_of(definition, context=context)
    max_runs = definition.get("max_runs")
    timeline = replace(
        _timeline(
            schedule,
            zone=zone,
            job_id=job_id,
            timing=parse_timing(definition.get("timing"), schedule=schedule, pointer="/timing"),
        ),
        starts_at_ms=_bound_ms(definition, "starts_at", zone=zone),
        ends_at_ms=_bound_ms(definition, "ends_at", zone=zone),
    )
    return Asked(
        job_id=job_id,
        timeline=timeline,
        after_ms=after_ms,
        count=count if max_runs is None else min(count, _count(max_runs, pointer="/max_runs", limit=2**53)),
        remark="its calendar is not looked at here" if definition.get("calendar") else None,
    )


def _schedule_of(definition: Mapping[str, object], *, context: ScheduleContext) -> Schedule:
    given, run_at = definition.get("schedule"), definition.get("run_at")
    if (given is None) == (run_at is None):
        raise InvalidDefinition.of("/schedule", "give exactly one of schedule and run_at")
    if given is not None:
        return parse_schedule(given, context=context)
    return parse_schedule({"at": run_at}, context=context)


def _definitions(path: Path) -> Iterator[object]:
    """Every definition of a file: one, a list, `jobs: [...]`, or several YAML documents."""
    data = path.read_bytes()
    documents = [_json(data)] if path.suffix == ".json" else _yaml(data)
    for document in documents:
        inner = document.get("jobs", document) if isinstance(document, Mapping) else document
        yield from inner if isinstance(inner, list) else [inner]


def _json(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidDefinition.of("", f"not JSON: {error}") from None


def _yaml(data: bytes) -> list[object]:
    import yaml  # not needed for an expression

    class Loader(yaml.SafeLoader):
        """YAML without dates: an instant stays the text that was written."""

    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return [document for document in yaml.load_all(data, Loader) if document is not None]
    except yaml.YAMLError as error:
        raise InvalidDefinition.of("", f"not YAML: {error}") from None


def _timeline(schedule: Schedule, *, zone: str, job_id: str, timing: Timing) -> Timeline:
    spread_ms = spread_offset(job_id, timing=timing, period_ms=schedule.period_ms())
    return Timeline(schedule=schedule, zone=zone, spread_ms=spread_ms)


def _zone_name(fields: Mapping[str, object]) -> str:
    zone = fields.get("timezone")
    if zone is None:
        return "UTC"
    if not isinstance(zone, str):
        raise InvalidDefinition.of("/timezone", "a time zone is an IANA name such as Europe/Berlin, given as a string")
    return zone


def _after_ms(text: object, *, zone: str) -> int:
    return wall_now_ms() if text is None else parse_instant(text, zone=zone, pointer="/after")


def _bound_ms(definition: Mapping[str, object], name: str, *, zone: str) -> int | None:
    text = definition.get(name)
    return None if text is None else parse_instant(text, zone=zone, pointer=f"/{name}")


def _count(value: object, *, pointer: str = "/count", limit: int = COUNT_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise InvalidDefinition.of(pointer, f"must be a whole number from 1 to {limit}")
    return value


def _previewed(asked: Asked) -> Previewed:
    return Previewed(asked=asked, entries=explain(asked.timeline, asked.after_ms, asked.count))


def _show(previews: list[Previewed], *, json_output: bool) -> None:
    if json_output:
        document = [_as_json(each) for each in previews]
        click.echo(orjson.dumps(document if len(document) != 1 else document[0], option=orjson.OPT_INDENT_2))
        return
    for each in previews:
        click.echo("\n".join(_as_text(each)))


def _as_json(previewed: Previewed) -> dict[str, object]:
    asked = previewed.asked
    return {
        "id": asked.job_id,
        "timezone": asked.timeline.zone,
        "times": [
            {
                "due": _short(each.due_ms),
                "start_after": _short(each.start_ms),
                "local": each.local,
                "notes": list(each.notes),
            }
            for each in previewed.entries
        ],
    }


def _as_text(previewed: Previewed) -> Iterator[str]:
    asked = previewed.asked
    yield f"{asked.job_id} in {asked.timeline.zone}" + (f" ({asked.remark})" if asked.remark else "")
    if not previewed.entries:
        yield f"  no time after {_short(asked.after_ms)}"
    for entry in previewed.entries:
        yield f"  {entry.local:<26}  {_short(entry.due_ms)}"
        for note in entry.notes:
            yield f"      {note}"


def _short(instant_ms: int) -> str:
    """UTC, with milliseconds only when there are any."""
    text = format_instant(min(instant_ms, LAST_MS))
    return f"{text[:-5]}Z" if text.endswith(".000Z") else text


def _fail(refused: InvalidDefinition) -> NoReturn:
    for problem in refused.problems:
        click.echo(f"error: {problem}", err=True)
    raise SystemExit(2)


if __name__ == "__main__":
    preview()
