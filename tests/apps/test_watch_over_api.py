"""`noontide runs watch` over the API: each end once, from a time on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from noontide.apps.cli import remote_runs
from noontide.client import Client, Run

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Runs:
    """Stands in for a client: closed runs, the newest first. read: how many were taken."""

    def __init__(self) -> None:
        self.ended: list[Run] = []
        self.read = 0

    def runs(self, *, state: Iterable[str], job: str | None) -> Iterator[Run]:
        assert (set(state), job) == ({"succeeded", "dead", "cancelled"}, None)
        for run in sorted(self.ended, key=lambda run: run.ended_at or NOON, reverse=True):
            self.read += 1
            yield run

    def end(self, *seconds: float) -> None:
        for each in seconds:
            at = NOON + timedelta(seconds=each)
            self.ended.append(Run(run_id=f"r{each}", job_id="j", tenant="t", state="succeeded", due=NOON, ended_at=at))


def following(runs: Runs, since: str | None) -> remote_runs._Following:
    found = remote_runs._Following(cast("Client", runs), None)
    found.begin(since)
    return found


def told(found: remote_runs._Following) -> list[str]:
    return [run.run_id for run in found.new()]


def test_from_now_on_reads_the_runs_of_a_moment_and_tells_what_ends_later_once() -> None:
    runs = Runs()
    runs.end(*range(100))
    found = following(runs, None)
    assert runs.read == 7
    assert told(found) == []
    runs.end(101, 100)
    assert told(found) == ["r100", "r101"]
    runs.end(98.5)  # its record was seen late
    assert told(found) == ["r98.5"]
    assert told(found) == []


def test_without_any_run_everything_is_new() -> None:
    runs = Runs()
    found = following(runs, None)
    runs.end(1)
    assert told(found) == ["r1"]


def test_since_a_time() -> None:
    runs = Runs()
    runs.end(1, 2, 3)
    assert told(following(runs, "2026-03-01T12:00:02Z")) == ["r2", "r3"]


def test_more_than_is_read_at_a_time_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote_runs, "WATCH_MAX", 3)
    runs = Runs()
    found = following(runs, None)
    runs.end(1, 2)
    assert told(found) == ["r1", "r2"]
    assert "left out" not in capsys.readouterr().err
    runs.end(3, 4)
    assert told(found) == ["r3", "r4"]  # two of the three read are new, and one of the seen is not read any more
    assert "more than 3 at a time: the oldest are left out" in capsys.readouterr().err


def test_late_is_from_when_it_may_start_until_it_starts_as_topics_say_it() -> None:
    run = Run(run_id="r", job_id="j", tenant="t", state="succeeded", due=NOON, ended_at=NOON + timedelta(seconds=9))
    assert remote_runs._as_execution(run)["late_ms"] == 9_000
    run.granted_at = NOON + timedelta(seconds=5)
    assert remote_runs._as_execution(run)["late_ms"] == 5_000
    run.start_after = NOON + timedelta(seconds=3)
    assert remote_runs._as_execution(run)["late_ms"] == 2_000
