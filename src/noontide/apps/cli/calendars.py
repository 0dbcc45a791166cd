"""`noontide calendars`: named sets of days, from iCalendar files or documents, and what moves when one changes."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from noontide.apps.cli.common import Cluster, Fault, broker_options, json_option
from noontide.apps.cli.tables import note, plural, show_json, show_table, utc
from noontide.core.errors import InvalidDefinition
from noontide.records.config import check_new_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noontide.apps.calendar_diff import Moved
    from noontide.apps.cli.reading import Reader
    from noontide.client import Client
    from noontide.core.calendar import Calendar

YEARS: Final = 5
"""How far ahead repetitions are written out unless --until says otherwise."""
DAYS_AHEAD: Final = 366
SHOWN_MAX: Final = 12
HEADS: Final = ("calendar", "days", "from", "to", "jobs")
DIFF_HEADS: Final = ("job", "tenant", "no longer", "instead, or besides")

_DATE = click.DateTime(formats=["%Y-%m-%d"])
_days_options = (
    click.option("--since", type=_DATE, help="First day that is taken of an .ics file; today when absent."),
    click.option("--until", type=_DATE, help="Last day that is taken of it; five years ahead when absent."),
    click.option("--only", "words", multiple=True, help="Take only events whose names contain this; again for others."),
)


def _of_file(command: Any) -> Any:
    for option in reversed(_days_options):
        command = option(command)
    return click.argument("name")(click.argument("file", type=click.Path(exists=True, dir_okay=False))(command))


@click.group()
def calendars() -> None:
    """Named sets of days that jobs leave out or keep to."""


@calendars.command()
@_of_file
@broker_options
def put(name: str, file: str, cluster: Cluster, **given: Any) -> None:
    """Set the calendar NAME to the days in FILE: .ics, JSON or YAML. Jobs that use it follow at once.

    See first what would move: `noontide calendars diff NAME FILE`.
    """
    from noontide.apps.cli.configuring import Configuration

    value = orjson.dumps(_document(name, file, given))
    try:
        document = check_new_config(f"calendar/{name}", value)
    except InvalidDefinition as refused:
        raise Fault(f"calendar/{name}: {refused}") from refused
    Configuration.of(cluster).put(f"calendar/{name}", value)
    click.echo(f"calendar/{name} is set: {plural(_count(_parsed(name, document)), 'day')}")


def put_over_api(client: Client, name: str, file: str, **given: Any) -> None:
    """The same over the HTTP API."""
    document = _document(name, file, given)
    client.configure("calendars", name, document)
    click.echo(f"calendar/{name} is set: {plural(_count(_parsed(name, document)), 'day')}")


@calendars.command()
@_of_file
@click.option("--days", type=click.IntRange(1, 3_660), default=DAYS_AHEAD, show_default=True, help="How far ahead.")
@json_option
@broker_options
def diff(name: str, file: str, days: int, as_json: bool, cluster: Cluster, **given: Any) -> None:  # noqa: FBT001
    """Show which fires of which jobs would move if NAME were set to the days in FILE. Changes nothing."""
    from noontide.adapters.system_clock import wall_now_ms
    from noontide.apps.calendar_diff import as_document
    from noontide.core.instants import format_instant

    changed = _parsed(name, _document(name, file, given))
    now_ms = wall_now_ms()
    found = list(_moved(_reader(cluster), changed, now_ms, now_ms + days * 86_400_000))
    if as_json:
        for moved in found:
            show_json(as_document(moved, {at: format_instant(at) for at in (*moved.gone, *moved.new)}))
        return
    rows = ((moved.job_id, moved.tenant, _times(moved.gone), _times(moved.new)) for moved in found)
    show_table(DIFF_HEADS, rows, empty=f"no fire of any job moves within {plural(days, 'day')}")


def diff_over_api(client: Client, name: str, file: str, days: int, as_json: bool, **given: Any) -> None:  # noqa: FBT001
    """The same over the HTTP API."""
    found = client.calendar_diff(name, _document(name, file, given), days=days)
    if as_json:
        for item in found["items"]:
            show_json(item)
        return
    rows = ((each["job_id"], each["tenant"], _texts(each["gone"]), _texts(each["new"])) for each in found["items"])
    show_table(DIFF_HEADS, rows, empty=f"no fire of any job moves within {plural(days, 'day')}")
    if not found["complete"]:
        note(f"only {plural(found['jobs'], 'job')} that use {name} were compared; there are more")


@calendars.command("list")
@json_option
@broker_options
def list_command(as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """List all calendars, and how many jobs use each."""
    from noontide.apps.calendar_diff import uses
    from noontide.apps.cli.reading import config_view

    reader = _reader(cluster)
    known = config_view(reader).calendars
    jobs = [job for stored in reader.jobs() if b'"calendar"' in stored.document and (job := stored.job()) is not None]
    rows = [(*_span(calendar), sum(uses(job, name) for job in jobs)) for name, calendar in sorted(known.items())]
    _show_calendars(HEADS, rows, as_json=as_json)


def list_over_api(client: Client, *, as_json: bool) -> None:
    """The same over the HTTP API, which does not count jobs."""
    rows = [_span(_parsed(name, value)) for name, value in sorted(client.configured("calendars").items())]
    _show_calendars(HEADS[:-1], rows, as_json=as_json)


def _span(calendar: Calendar) -> tuple[str, int, str, str]:
    """Name, days, first and last day."""
    first, last = (calendar.ranges[0][0], calendar.ranges[-1][1]) if calendar.ranges else (None, None)
    return calendar.name, _count(calendar), "" if first is None else _iso(first), "" if last is None else _iso(last)


def _show_calendars(heads: Sequence[str], rows: Sequence[tuple[object, ...]], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            show_json(dict(zip(heads, row, strict=True)))
        return
    show_table(heads, (tuple(map(str, row)) for row in rows), empty="no calendars")


@calendars.command()
@click.argument("name")
@broker_options
def show(name: str, cluster: Cluster) -> None:
    """Show the days of a calendar, as JSON."""
    found = _reader(cluster).config().get(f"calendar/{name}")
    _show_calendar(name, found)


def show_over_api(client: Client, name: str) -> None:
    """The same over the HTTP API."""
    found = client.configured("calendars").get(name)
    _show_calendar(name, None if found is None else orjson.dumps(found))


def _show_calendar(name: str, found: bytes | None) -> None:
    if found is None:
        raise Fault(f"no calendar is called {name!r}")
    click.echo(found.decode("utf-8", "replace"))


def _document(name: str, file: str, given: dict[str, Any]) -> dict[str, object]:
    """The days of a file, as a configuration."""
    data = Path(file).read_bytes()
    if data.lstrip(_BEFORE_TEXT)[: len(_ICALENDAR)].upper() != _ICALENDAR:
        from noontide.apps.cli.definitions import split

        sources = list(split(data, name=file))
        document = orjson.loads(sources[0].text) if len(sources) == 1 else None
        if not isinstance(document, dict):
            raise Fault(f"{file}: must hold one object with dates, or be an iCalendar file")
        return document
    from noontide.adapters.ical import as_document, read_days

    try:
        days = read_days(data, since=_since(given), until=_until(given))
    except InvalidDefinition as refused:
        raise Fault(f"{file}: {refused}") from refused
    words = [word.lower() for word in given["words"]]
    chosen = [each for each in days if not words or any(word in each.summary.lower() for word in words)]
    if not chosen:
        named = " has such a name" if words else ""
        raise Fault(f"{file}: no event between {_since(given)} and {_until(given)}{named}")
    note(f"{file}: {plural(len(chosen), 'event')} between {_since(given)} and {_until(given)}")
    return as_document(chosen)


def _since(given: dict[str, Any]) -> date:
    chosen: date = _today() if given["since"] is None else given["since"].date()
    return chosen


def _until(given: dict[str, Any]) -> date:
    chosen: date = date(_since(given).year + YEARS, 12, 31) if given["until"] is None else given["until"].date()
    return chosen


def _today() -> date:
    from noontide.adapters.system_clock import wall_now_ms

    return date.fromordinal(_EPOCH + wall_now_ms() // 86_400_000)


_ICALENDAR: Final = b"BEGIN:VCALENDAR"
_BEFORE_TEXT: Final = b"\xef\xbb\xbf \t\r\n"
"""A byte order mark, and white space."""
_EPOCH: Final = date(1970, 1, 1).toordinal()


def _iso(day: int) -> str:
    return date.fromordinal(_EPOCH + day).isoformat()


def _parsed(name: str, document: Mapping[str, object]) -> Calendar:
    from noontide.core.calendar import parse_calendar

    try:
        return parse_calendar(name, document, pointer="")
    except InvalidDefinition as refused:
        raise Fault(f"calendar/{name}: {refused}") from refused


def _count(calendar: Calendar) -> int:
    return sum(last - first + 1 for first, last in calendar.ranges)


def _moved(reader: Reader, changed: Calendar, after_ms: int, until_ms: int) -> Iterator[Moved]:
    from noontide.apps.calendar_diff import moved_fires, uses
    from noontide.apps.cli.reading import config_view

    config = config_view(reader)
    for stored in reader.jobs():
        job = stored.job() if changed.name.encode() in stored.document else None
        if job is not None and uses(job, changed.name):
            found = moved_fires(job, changed, config, after_ms=after_ms, until_ms=until_ms)
            if found is not None:
                yield found


def _times(instants: tuple[int, ...]) -> str:
    return _texts([utc(at) for at in instants])


def _texts(instants: Sequence[str]) -> str:
    more = len(instants) - SHOWN_MAX
    return ", ".join(instants[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _reader(cluster: Cluster) -> Reader:
    from noontide.apps.cli.reading import Reader

    return Reader(connection=cluster.connection(), layout=cluster.layout())
