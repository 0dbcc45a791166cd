"""`noontide forecast`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from noontide.apps.cli.common import Cluster, broker_options, json_option
from noontide.apps.cli.tables import note, plural, show_json, show_table

if TYPE_CHECKING:
    from noontide.client import Client

DAY_MINUTES: Final = 24 * 60
BAR_CHARS: Final = 30
HOUR_HEADS: Final = ("from", "runs", "fullest minute", "if relaxed", "")
PEAK_HEADS: Final = ("minute", "runs", "exact", "if relaxed", "most of them")


@click.command()
@click.option(
    "--minutes", type=click.IntRange(1, DAY_MINUTES), default=DAY_MINUTES, show_default=True, help="How far to look."
)
@click.option("--by", type=click.Choice(("tenant", "lane", "target")), help="The runs of each of these, too.")
@click.option("--tenant", help="Runs of this tenant only.")
@click.option("--peaks", type=click.IntRange(0, 50), default=5, show_default=True, help="Fullest minutes to explain.")
@json_option
@broker_options
def forecast(cluster: Cluster, **given: Any) -> None:
    """Show how many runs the next minutes and hours will have, by where jobs stand now.

    `if relaxed` is what it would be if the jobs that recur and insist on their minute ("timing": "exact") had relaxed
    timing. Without --server all jobs are read from Kafka; with it the schedulers' indexes are asked, which is quicker.
    """
    _show(_read(cluster, given), given)


def forecast_over_api(client: Client, **given: Any) -> None:
    """The same over the HTTP API."""
    asked = {name: given[name] for name in ("minutes", "by", "tenant", "peaks")}
    _show(client.forecast(**asked), given)


def _read(cluster: Cluster, given: Mapping[str, Any]) -> dict[str, Any]:
    import asyncio

    from noontide.adapters.system_clock import wall_now_ms
    from noontide.apps.cli.reading import Reader, config_view
    from noontide.apps.forecasting import Standing, forecast_of_jobs, peaks_of, view_of
    from noontide.apps.port import wire
    from noontide.apps.port.foreseen import answer_of

    reader = Reader(connection=cluster.connection(), layout=cluster.layout())
    from_ms = wall_now_ms() // 60_000 * 60_000
    jobs = (
        Standing(job, stored.document, stored.cursor)
        for stored in reader.jobs()
        if stored.cursor and (job := stored.job()) is not None
    )
    found = {0: forecast_of_jobs(jobs, config_view(reader), from_ms=from_ms, minutes=given["minutes"])}
    tenants = None if given["tenant"] is None else [given["tenant"]]
    question = wire.Forecast(
        slots=[0], from_ms=from_ms, minutes=given["minutes"], tenants=tenants, by=given["by"] or ""
    )
    answer = asyncio.run(answer_of(question, found))
    question.details = fullest = peaks_of(answer.runs, given["peaks"])
    detailed = asyncio.run(answer_of(question, found))
    view = view_of(answer, detailed, fullest, from_ms=from_ms, by=given["by"])
    return {**view, "complete": True, "missing_partitions": []}


def _show(found: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    if given["as_json"]:
        show_json(dict(found))
        return
    runs = found["runs"]
    click.echo(
        f"{plural(sum(runs), 'run')} of {plural(found['jobs'], 'job')} in {plural(len(runs), 'minute')} from "
        f"{_short(found['from'])}; fullest minute {max(runs):,}, {max(found['relaxed']):,} if all were relaxed"
    )
    if not found["complete"]:
        absent = ", ".join(map(str, found["missing_partitions"])) or "none"
        note(f"not complete: partitions without an answer: {absent}; slots with too many jobs: {found['cut_slots']}")
    if not any(runs):
        return
    click.echo()
    show_table(HOUR_HEADS, _spans(found), empty="")
    for name in ("tenants", "lanes", "targets"):
        if name == f"{given['by']}s":
            click.echo()
            rows = ((each, f"{count:,}") for each, count in found["totals"][name].items())
            show_table((name.removesuffix("s"), "runs"), rows, empty="")
    if found["peaks"]:
        click.echo()
        show_table(PEAK_HEADS, map(_peak, found["peaks"]), empty="")


def _spans(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Lines of an hour each; of a minute each when less than two hours are shown."""
    runs, relaxed = found["runs"], found["relaxed"]
    step = 60 if len(runs) >= 120 else 1
    sums = [sum(runs[start : start + step]) for start in range(0, len(runs), step)]
    for place, total in enumerate(sums):
        part = slice(place * step, (place + 1) * step)
        if total or step > 1:
            bar = "█" * round(BAR_CHARS * total / max(sums))
            at = _later(found["from"], place * step)
            yield at, f"{total:,}", f"{max(runs[part]):,}", f"{max(relaxed[part]):,}", bar


def _peak(peak: Mapping[str, Any]) -> tuple[str, ...]:
    named = "; ".join(_most(peak[kind]) for kind in ("tenants", "lanes", "targets"))
    return _short(peak["at"]), *(f"{peak[name]:,}" for name in ("runs", "exact", "relaxed")), named


def _most(counts: Mapping[str, int]) -> str:
    listed: Sequence[tuple[str, int]] = list(counts.items())[:2]
    return ", ".join(f"{name} {count:,}" for name, count in listed)


def _later(instant: str, minutes: int) -> str:
    from noontide.core.instants import format_instant, parse_instant

    return _short(format_instant(parse_instant(instant, zone=None, pointer="/from") + minutes * 60_000))


def _short(instant: str) -> str:
    return instant[:16].replace("T", " ") + "Z"
