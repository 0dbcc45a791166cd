"""The checker's own reading of schedules, against known times and against the scheduler's reading."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources

import orjson
import pytest

from noontide.apps.cli.definitions import split
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.core.job import Job
from noontide.testing.checker_schedules import NotJudged, Planner, duration_ms, instant_ms

DAY_MS = 86_400_000
TARGET = {"topic": {"name": "x"}}


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def due(schedule: dict[str, object], zone: str, first: str, last: str) -> list[str]:
    planner = Planner(from_ms=ms(first), until_ms=ms(last))
    dues = planner.plan({"schedule": schedule, "timezone": zone, "target": TARGET}).dues
    return [datetime.fromtimestamp(at / 1000, UTC).strftime("%m-%dT%H:%M") for at in dues]


def test_fixed_times_in_the_night_without_them_run_at_the_end_of_the_gap() -> None:
    found = due({"cron": "30 2 * * *"}, "Europe/Berlin", "2026-03-28T00:00Z", "2026-03-30T12:00Z")
    assert found == ["03-28T01:30", "03-29T01:00", "03-30T00:30"]


def test_fixed_times_in_the_night_with_two_of_them_run_at_the_first() -> None:
    found = due({"cron": "30 2 * * *"}, "Europe/Berlin", "2026-10-24T12:00Z", "2026-10-26T12:00Z")
    assert found == ["10-25T00:30", "10-26T01:30"]


def test_steps_follow_every_real_instant() -> None:
    found = due({"cron": "*/30 * * * *"}, "Europe/Berlin", "2026-10-24T23:59Z", "2026-10-25T02:00Z")
    assert found == ["10-25T00:00", "10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"]
    spring = due({"cron": "*/30 * * * *"}, "Europe/Berlin", "2026-03-29T00:29Z", "2026-03-29T01:30Z")
    assert spring == ["03-29T00:30", "03-29T01:00", "03-29T01:30"]


def test_a_union_names_an_instant_once() -> None:
    found = due({"cron": ["0 6 * * *", "0 */6 * * *"]}, "UTC", "2026-01-01T00:00Z", "2026-01-01T12:00Z")
    assert found == ["01-01T06:00", "01-01T12:00"]


def test_bounds_are_included() -> None:
    planner = Planner(from_ms=0, until_ms=10_000)
    fields = {"starts_at": "1970-01-01T00:00:02Z", "ends_at": "1970-01-01T00:00:04Z"}
    plan = planner.plan({"schedule": {"every": "PT1S", "anchor": "1970-01-01T00:00:00Z"}, **fields})
    assert list(plan.dues) == [2_000, 3_000, 4_000]
    assert list(plan.between(2_000, 3_000)) == [3_000]


@pytest.mark.parametrize(
    "text, length_ms",
    [("PT5S", 5_000), ("P1DT2H", 93_600_000), ("PT0.25S", 250), ("PT1H30M", 5_400_000), ("P2W", 14 * DAY_MS)],
)
def test_durations(text: str, length_ms: int) -> None:
    assert duration_ms(text) == length_ms


def test_instants() -> None:
    assert instant_ms("2026-12-24T18:00:00.250Z", "UTC") == ms("2026-12-24T18:00:00.250Z")
    assert instant_ms("2026-12-24T19:00:00", "Europe/Berlin") == ms("2026-12-24T18:00:00Z")


@pytest.mark.parametrize("cron", ["0 0 15W * *", "0 0 * * 5L", "0 0 L-2 * *", "0 0 */2 * MON", "H 0 * * *", "nonsense"])
def test_expressions_it_does_not_read(cron: str) -> None:
    with pytest.raises(NotJudged):
        Planner(from_ms=0, until_ms=DAY_MS).plan({"schedule": {"cron": cron}})


def examples() -> list[bytes]:
    folder = resources.files("noontide.examples")
    return [
        source.text
        for name in ("lively.yaml", "everyday.yaml")
        for source in split(folder.joinpath(name).read_bytes(), name=name)
    ]


def schedulers_dues(job: Job, from_ms: int, until_ms: int) -> list[int]:
    assert job.schedule is not None
    found, at_ms = [], from_ms
    while (after := job.schedule.next_after(at_ms)) is not None and after <= until_ms:
        found.append(after)
        at_ms = after
    low = job.starts_at_ms if job.starts_at_ms is not None else from_ms
    high = job.ends_at_ms if job.ends_at_ms is not None else until_ms
    return [each for each in found if low <= each <= high]


@pytest.mark.parametrize("text", examples(), ids=lambda text: str(text[:40], "utf-8").split('"')[3])
def test_both_readings_of_the_examples_agree(text: bytes) -> None:
    from_ms = ms("2026-10-20T00:00:00Z")
    definition = parse_definition(text, context=DefinitionContext(key=None, tenant=None, created_ms=from_ms))
    often = any(word in text for word in (b'"every"', b"seconds", b"*/"))
    length_ms = DAY_MS // 4 if often else 80 * DAY_MS
    document = orjson.loads(definition.document)
    if document.get("calendar") or "H * * * *" in str(document["schedule"]):
        with pytest.raises(NotJudged):
            Planner(from_ms=from_ms, until_ms=from_ms + length_ms).plan(document)
        return
    planner = Planner(from_ms=from_ms, until_ms=from_ms + length_ms)
    plan = planner.plan(document)
    expected = schedulers_dues(definition.job, from_ms, from_ms + length_ms)
    assert [each for each in plan.dues if each <= planner.until_ms] == expected
    assert expected or b"contract-reminder" in text or b"backup" in text
