"""Every schedule case: through the core, and through `preview --batch` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from noontide.core.dst import DEFAULT_DST, DstRule
from noontide.core.durations import parse_duration, parse_seconds
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_instant, parse_instant
from noontide.core.schedule import ScheduleContext, parse_schedule, schedule_from_key

FOLDER = Path(__file__).parent
Row = dict[str, Any]  # rows of the case files: their shape differs by kind


def read(name: str) -> list[Row]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


ROWS = read("schedules.jsonl")
BY_ID = {row["id"]: row for row in ROWS}
BEHAVIOUR = {row["id"]: row for row in read("behaviour.jsonl")}
RULES = {"skip": DstRule(gap="skip"), "shift": DstRule(gap="shift"), "wall": DstRule(gap="skip", repeat="both")}
PLAIN_READING = DstRule(gap="shift")


def other_rule_row(row: Row) -> tuple[Row, DstRule]:
    """The case a row of the other rules refers to, with its own answer, and the rule.

    `wall` of a one-off is the plain reading of its local time, with the offset from before the gap: a
    single time has no other occurrence that could stand for it, so that is the rule `shift`.
    """
    case = {**BY_ID[row["id"]], "expected": row["expected"]}
    case["count"] = max(len(row["expected"]), 1)
    return case, PLAIN_READING if row["policy"] == "wall" and "run_at" in case else RULES[row["policy"]]


OTHER_RULES = [(row["policy"], *other_rule_row(row)) for row in read("schedules-other-dst-rules.jsonl")]


def definition(row: Row) -> Row:
    if "cron" in row:
        return {"cron": row["cron"]} | ({"seconds": row["seconds"]} if "seconds" in row else {})
    if "interval" in row:
        return {"every": row["interval"], "anchor": row.get("anchor")}
    return {"at": row["run_at"]}


def times(row: Row, dst: DstRule) -> list[str]:
    after_ms = parse_instant(row["after"], zone=None, pointer="/after")
    context = ScheduleContext(timezone=row["timezone"], dst=dst, job_id=row["id"], created_ms=after_ms)
    schedule = schedule_from_key(parse_schedule(definition(row), context=context).key)
    found: list[str] = []
    for _ in range(row["count"]):
        next_ms = schedule.next_after(after_ms)
        if next_ms is None:
            break
        assert next_ms > after_ms
        found.append(format_instant(next_ms).replace(".000Z", "Z"))
        after_ms = next_ms
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_default_rule(row: Row) -> None:
    assert times(row, DEFAULT_DST) == row["expected"]


@pytest.mark.parametrize(
    "row, dst", [case[1:] for case in OTHER_RULES], ids=[f"{case[1]['id']}-{case[0]}" for case in OTHER_RULES]
)
def test_other_rules(row: Row, dst: DstRule) -> None:
    assert times(row, dst) == row["expected"]


def batch(rows: list[Row], env: dict[str, str]) -> list[Row]:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    done = subprocess.run(
        [sys.executable, "-m", "noontide.apps.cli.preview", "--batch", "-"],
        input=lines.encode(),
        env=os.environ | env,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "env", [{}, {"TZ": "Australia/Sydney"}, {"TZ": "America/Sao_Paulo", "PYTHONTZPATH": ""}], ids=str
)
def test_batch_in_a_process(env: dict[str, str]) -> None:
    asked = [row for row in ROWS if row.get("env", {}).items() <= env.items()]
    answers = batch(asked, env)
    assert answers == [{"id": row["id"], "times": row["expected"]} for row in asked]


def test_batch_with_other_rules() -> None:
    asked = [row | {"dst": {"gap": dst.gap, "repeat": dst.repeat}} for _, row, dst in OTHER_RULES]
    assert batch(asked, {}) == [{"id": row["id"], "times": row["expected"]} for row in asked]


def refusal(value: object, timezone: str | None = "UTC") -> str:
    with pytest.raises(InvalidDefinition) as refused:
        parse_schedule(value, context=ScheduleContext(timezone=timezone, job_id="a", created_ms=0))  # type: ignore[arg-type]
    return str(refused.value)


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


FIELDS = ("second:", "minute:", "hour:", "day of month:", "month:", "day of week:", " fields; ")
REFUSED_CRONS = [
    (row_id, text)
    for row_id in (
        *("cron-54", "cron-55", "cron-56", "cron-57", "cron-58", "cron-61", "cron-62", "cron-63", "cron-65"),
        *("cron-66", "cron-67", "cron-69", "cron-70"),
    )
    for text in listed(BEHAVIOUR[row_id]["input"]["cron"])
]


@pytest.mark.parametrize("row_id, text", REFUSED_CRONS)
def test_refused_expressions_name_the_field(row_id: str, text: str) -> None:
    started = time.thread_time()
    message = refusal({"cron": text})
    assert message.startswith("/schedule/cron: ")
    assert any(field in message for field in FIELDS), message
    assert time.thread_time() - started < 1, "the cases allow a second"


@pytest.mark.parametrize(
    "row_id, hint",
    [
        ("cron-72", "write"),
        ("cron-73", "in the field timezone"),
        ("cron-74", "give them as a list"),
    ],
)
def test_pasted_dialects_get_a_hint(row_id: str, hint: str) -> None:
    for text in BEHAVIOUR[row_id]["input"]["cron"]:
        assert hint in refusal({"cron": text})
        assert hint in refusal({"cron": text, "seconds": True})


def test_long_names_are_refused_with_the_short_ones() -> None:
    for text in BEHAVIOUR["cron-75"]["input"]["cron"]:
        assert "is not a number or a name" in refusal({"cron": text})


def test_five_fields_are_accepted() -> None:
    for text in BEHAVIOUR["cron-71"]["input"]["cron"]:
        parse_schedule(text, context=ScheduleContext(timezone="UTC", job_id="a", created_ms=0))


def test_a_bad_definition_leaves_the_good_one_alone() -> None:
    jobs = {job["id"]: job | {"after": "2026-01-01T00:00:00Z"} for job in BEHAVIOUR["cron-59"]["input"]["jobs"]}
    answers = batch([jobs["bad"], jobs["good"] | {"count": 2}], {})
    assert answers[0]["error"]["field"] == "cron"
    assert answers[1]["times"] == ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]


def test_zones_that_are_none() -> None:
    for name in BEHAVIOUR["tz-16"]["input"]["timezone"]:
        assert refusal({"cron": "54 7 * * *"}, name).startswith("/timezone: ")


def test_zone_data_is_bundled() -> None:
    case = BEHAVIOUR["tz-17"]["input"]
    asked = case["job"] | {"id": "a", "after": "2026-03-06T09:00:00Z", "count": 2}
    assert batch([asked], case["env"]) == [{"id": "a", "times": ["2026-03-09T07:00:00Z", "2026-03-10T07:00:00Z"]}]


def test_intervals_that_are_none() -> None:
    for value in BEHAVIOUR["int-09"]["input"]["interval_seconds"]:
        assert refusal({"every": value}).startswith("/schedule/every: ")
        with pytest.raises(InvalidDefinition, match="/every_sec: "):
            parse_seconds(value, pointer="/every_sec")
    assert parse_duration("PT1S", pointer="") == parse_seconds(1, pointer="") == 1000


def test_local_one_off_with_and_without_a_zone() -> None:
    text = BEHAVIOUR["clk-13"]["input"]["run_at"]
    assert format_instant(parse_instant(text, zone=None, pointer="")) == "2030-01-01T09:00:00.000Z"
    assert format_instant(parse_instant(text, zone="America/New_York", pointer="")) == "2030-01-01T14:00:00.000Z"


def test_fine_digits_are_cut_and_a_leap_second_is_the_next_one() -> None:
    fine, leap = (BEHAVIOUR[row_id]["input"]["run_at"] for row_id in ("clk-15", "clk-16"))
    assert format_instant(parse_instant(fine, zone=None, pointer="")) == "2030-06-24T14:54:41.634Z"
    assert format_instant(parse_instant(leap, zone=None, pointer="")) == "2017-01-01T00:00:00.000Z"


def test_epoch_numbers_are_refused() -> None:
    for value in BEHAVIOUR["clk-17"]["input"]["run_at"]:
        assert "its unit is ambiguous" in refusal({"at": value})


def test_a_yearly_job_waits_for_its_year() -> None:
    case = BEHAVIOUR["int-08"]
    row = {"id": "a", "cron": case["input"]["cron"], "timezone": "UTC", "after": case["input"]["now"], "count": 1}
    assert times(row, DEFAULT_DST) == [case["expected"]["next_run"]]


REAL = read("real-schedules.jsonl")
FIVE_FIELDS = {"crontab", "airflow-cron", "prow-cron", "github-actions", "system-crontab", "k8s-cronjob", "cron5"}


@pytest.mark.parametrize("row", REAL, ids=lambda row: f"{row['dialect']}: {row['expr']}")
def test_real_expressions_are_accepted_or_hinted_at(row: Row) -> None:
    if row["dialect"] in FIVE_FIELDS:
        context = ScheduleContext(timezone="UTC", job_id="a", created_ms=0)
        assert parse_schedule(row["expr"], context=context).next_after(0) is not None
    elif row["dialect"] in ("spring-cron (seconds first)", "azure-ncrontab"):
        assert '"seconds": true' in refusal(row["expr"])
    else:
        message = refusal(row["expr"])
        assert any(hint in message for hint in ("write", "give them as a list")), message
