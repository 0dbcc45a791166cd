"""`noontide preview`: an expression, a file of definitions, and what the start of it costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from noontide.apps.cli.preview import preview


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(preview, arguments, input=stdin)


BERLIN = ("30 2 * * *", "--timezone", "Europe/Berlin", "--after", "2026-03-28T12:00:00Z", "--count", "2")


def test_an_expression() -> None:
    done = run(*BERLIN)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "preview in Europe/Berlin",
        "  2026-03-29T03:00:00+02:00   2026-03-29T01:00:00Z",
        "      2026-03-29 02:30:00 does not exist in Europe/Berlin and runs at this time instead",
        "  2026-03-30T02:30:00+02:00   2026-03-30T00:30:00Z",
    ]


def test_an_expression_as_json() -> None:
    done = run(*BERLIN, "--json", "--gap", "shift")
    assert json.loads(done.stdout) == {
        "id": "preview",
        "timezone": "Europe/Berlin",
        "times": [
            {
                "due": "2026-03-29T01:30:00Z",
                "start_after": "2026-03-29T01:30:00Z",
                "local": "2026-03-29T03:30:00+02:00",
                "notes": ["2026-03-29 02:30:00 does not exist in Europe/Berlin and runs at this time instead"],
            },
            {
                "due": "2026-03-30T00:30:00Z",
                "start_after": "2026-03-30T00:30:00Z",
                "local": "2026-03-30T02:30:00+02:00",
                "notes": [],
            },
        ],
    }


def test_a_schedule_as_json_and_local_after() -> None:
    value = '{"every": "PT15M", "anchor": "2026-01-01T00:00:00Z"}'
    done = run(value, "--after", "2026-06-01T12:01:00", "--timezone", "Europe/Berlin", "--count", "1")
    assert done.stdout.splitlines()[1].split() == ["2026-06-01T12:15:00+02:00", "2026-06-01T10:15:00Z"]


def test_seconds() -> None:
    done = run("30 * * * * *", "--seconds", "--after", "2026-01-01T00:00:00Z", "--count", "1")
    assert "2026-01-01T00:00:30Z" in done.stdout


def test_now_is_the_default() -> None:
    done = run("* * * * *", "--count", "3", "--json")
    due = [each["due"] for each in json.loads(done.stdout)["times"]]
    assert len(due) == 3
    assert due == sorted(due)
    assert due[0] > "2025"


def test_no_time_left() -> None:
    done = run("0 0 0 1 1 ? 2020", "--seconds", "--after", "2026-01-01T00:00:00Z")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1] == "  no time after 2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("61 * * * *",), "error: /schedule/cron: minute: 61 is out of range 0-59"),
        (("* * * * *", "--timezone", "CDT"), "error: /timezone: 'CDT' is not a known time zone"),
        (("* * * * *", "--after", "yesterday"), "error: /after: "),
        (("* * * * *", "--gap", "jump"), "error: /dst/gap: must be one of next_valid, shift, skip"),
        (('{"every": 5}',), "error: /schedule/every: "),
        (("{",), "error: (document): not a line of JSON"),
        ((), "give one of EXPRESSION, --file and --batch"),
        (("* * * * *", "--count", "0"), "--count"),
        (("* * * * *", "--batch", "-"), "give one of"),
    ],
)
def test_refused(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


DEFINITIONS = """
id: nightly
schedule: "0 6 * * *"
timezone: Europe/Berlin
timing: exact
starts_at: 2027-01-01T00:00:00
ends_at: 2027-01-31T00:00:00
max_runs: 2
target: https://example.org/
---
jobs:
- {id: once, run_at: 2026-12-24T18:00:00, timezone: America/New_York}
- {id: spread, schedule: {cron: "0 6 * * *"}, timing: {window: PT10S}, calendar: {exclude: [holidays]}}
"""


def test_a_file_of_definitions(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(DEFINITIONS)
    done = run("--file", str(path), "--after", "2026-11-30T00:00:00Z", "--json")
    nightly, once, spread = json.loads(done.stdout)
    assert [each["due"] for each in nightly["times"]] == ["2027-01-01T05:00:00Z", "2027-01-02T05:00:00Z"]
    assert [each["due"] for each in once["times"]] == ["2026-12-24T23:00:00Z"]
    assert (
        spread["times"][0]["due"]
        == "2026-11-30T06:00:00Z"
        <= spread["times"][0]["start_after"]
        < "2026-11-30T06:00:10Z"
    )
    text = run("--file", str(path), "--after", "2026-11-30T00:00:00Z", "--count", "1").stdout
    assert "nightly in Europe/Berlin" in text
    assert "spread in UTC (its calendar is not looked at here)" in text
    assert "after its due time (the job's own spread)" in text


def test_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"id": "a", "schedule": {"at": "2026-12-24T18:00:00Z"}}')
    assert "2026-12-24T18:00:00Z" in run("--file", str(path), "--after", "2026-11-30T00:00:00Z").stdout


@pytest.mark.parametrize(
    "text, message",
    [
        ("{id: a, schedule: '61 * * * *'}", "error: /schedule: minute: 61 is out of range 0-59 (a)"),
        ("{id: a}", "error: /schedule: give exactly one of schedule and run_at (a)"),
        ("{id: a, schedule: '@daily', max_runs: true}", "error: /max_runs: "),
        ("{id: a, schedule: '@daily', starts_at: 5}", "error: /starts_at: "),
        ("[5]", "error: (document): definition 1 is not an object"),
        ("{", "error: (document): not YAML"),
    ],
)
def test_a_refused_definition(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    done = run("--file", str(path))
    assert done.exit_code == 2
    assert message in done.stderr


LINES = """
{"id": "a", "cron": "0 0 * * *", "after": "2026-01-01T00:00:00Z", "count": 2}
{"id": "b", "cron": "0 0 * * *"
[]
{"id": "c", "cron": "0 0 * * *", "interval": "PT5M"}

{"id": "d", "cron": "61 * * * *"}
{"id": "e", "interval": true}
{"id": "f", "run_at": 5}
{"id": "g", "cron": "@daily", "timezone": "CDT"}
{"id": "h", "cron": "@daily", "timezone": 5}
{"id": "i", "cron": "@daily", "after": "x"}
{"id": "j", "cron": "@daily", "count": 0}
{"id": "k", "cron": "@daily", "dst": {"gap": "jump"}}
{"id": "l", "interval": "PT5M", "anchor": 5}
{"id": "m", "interval": "PT0.25S", "anchor": "2026-01-01T00:00:00Z", "after": "2026-01-01T00:00:00Z", "count": 1}
{"id": "n", "cron": "@daily", "timing": {"window": "PT1S"}, "after": "2026-01-01T00:00:00Z", "count": 1}
{"id": "o", "run_at": "2026-01-01T00:00:00Z", "after": "2026-01-01T00:00:00Z"}
"""
IN_A_ZONE = {
    "id": "p",
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "dst": {"gap": "skip"},
    "after": "2026-03-28T12:00:00Z",
    "count": 1,
}


def test_a_batch_with_bad_lines() -> None:
    done = run("--batch", "-", stdin=LINES + json.dumps(IN_A_ZONE))
    assert done.exit_code == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in found] == ["a", None, None, *"cdefghijklmnop"]
    assert found[0] == {"id": "a", "times": ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]}
    assert [each["error"]["field"] for each in found if "error" in each] == [
        *("", "", "", "cron", "interval", "run_at", "timezone", "timezone", "after", "count", "dst/gap", "anchor")
    ]
    assert all(each["error"]["message"] for each in found if "error" in each)
    millis, spread, past, skipped = found[-4:]
    assert millis["times"] == ["2026-01-01T00:00:00.250Z"]
    assert spread["times"] == ["2026-01-02T00:00:00Z"]
    assert spread["starts"][0].startswith("2026-01-02T00:00:00.")
    assert past == {"id": "o", "times": []}
    assert skipped["times"] == ["2026-03-30T00:30:00Z"]


def test_the_start_is_light() -> None:
    """What would make `noontide preview` slow to start is not imported for an interval, croniter only for a cron."""
    code = (
        "import sys\n"
        "from noontide.apps.cli.preview import preview\n"
        "preview(['{\"every\": \"PT5M\"}', '--count', '1'], standalone_mode=False)\n"
        "heavy = ('aiokafka', 'confluent_kafka', 'rocksdict', 'rich', 'yaml', 'croniter', 'asyncio', 'httpx')\n"
        "sys.exit(' '.join(name for name in heavy if name in sys.modules) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


def test_the_batch_of_the_reference_is_what_is_answered() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/schedules.md").read_text(encoding="utf-8")
    asked, answered = re.findall(r"```\n(\{.*?)```", page, re.DOTALL)
    assert run("--batch", "-", stdin=asked).stdout == answered
