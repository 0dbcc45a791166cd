"""The demo, as somebody runs it who wants one line at the end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.conftest import RunningKafka


@pytest.mark.kafka
@pytest.mark.slow
def test_the_demo_runs_jobs_and_finds_every_run(kafka: RunningKafka) -> None:
    command = [sys.executable, "-m", "noontide.apps.cli.main", "demo", "--seconds", "6", "--json"]
    done = subprocess.run(
        [*command, "--bootstrap", kafka.bootstrap], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["jobs"] >= 20, result["missing"], result["duplicates"]) == (True, 0, 0)
    assert result["runs"] >= 6
    assert 0 <= result["late_ms_p50"] <= result["late_ms_p99"]
    assert "Traceback" not in done.stderr
