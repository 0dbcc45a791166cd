"""The demo, as somebody runs it who wants one line at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.conftest import RunningKafka

COMMAND = [sys.executable, "-m", "noontide.apps.cli.main", "demo", "--json"]
KEYS = ["jobs", "runs", "late_ms_p50", "late_ms_p99", "duplicates", "missing"]


def demo(*options: str, timeout_s: float) -> tuple[dict[str, Any], str]:
    """What it prints at the end, and all it said before. It must go well."""
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert list(result)[:6] == KEYS
    assert (result["jobs"] >= 24, result["missing"], result["duplicates"]) == (True, 0, 0)
    assert 0 <= result["late_ms_p50"] <= result["late_ms_p99"]
    return result, done.stderr


@pytest.mark.kafka
@pytest.mark.slow
def test_the_demo_runs_jobs_and_finds_every_run(kafka: RunningKafka) -> None:
    result, said = demo("--seconds", "8", "--bootstrap", kafka.bootstrap, timeout_s=120)
    assert (result["runs"] >= 12, result["by_workers"] >= 3) == (True, True)
    assert "succeeded  thumbnails  handler:thumbnail" in said
    assert "succeeded  stock-webhook  http://127.0.0.1:" in said


@pytest.mark.kafka
@pytest.mark.slow
def test_once_takes_less_than_a_minute_with_a_broker_of_its_own() -> None:
    result, _ = demo("--once", timeout_s=60)
    assert result["runs"] > result["by_workers"] >= 5


@pytest.mark.kafka
@pytest.mark.slow
def test_a_scheduler_and_a_worker_are_killed_and_nothing_is_lost() -> None:
    result, said = demo("--once", "--kill", timeout_s=120)
    assert result["killed"][0] == "scheduler 1"
    assert result["killed"][1] in ("worker 1", "worker 2")
    killed, taken_over, middle, *back = [line for line in said.splitlines() if line.startswith("*** ")]
    assert killed.startswith("*** kill -9 scheduler 1 (process ")
    assert taken_over.startswith("*** scheduler 2 has taken over slot")
    assert middle.startswith(f"*** kill -9 {result['killed'][1]} (process ")
    assert [line for line in back if "succeeded, attempt 2 on w-" in line]
