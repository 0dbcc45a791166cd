"""The tutorial `first-job.md`, run as it is printed; only the address is that of the test's own API."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation
from tests.integration.scheduler_process import SchedulerProcess

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "first-job.md"
ADDRESS = "http://127.0.0.1:8480"


@pytest.fixture
def url(kafka: RunningKafka, prefix: str, tmp_path: Path) -> Iterator[str]:
    with (
        Installation.create(kafka.bootstrap, prefix) as installation,
        SchedulerProcess(installation, tmp_path / "data", secret=SECRET) as scheduler,
        ApiProcess(installation, tmp_path) as api,
    ):
        scheduler.start().until_owner()
        yield api.url


def answers(url: str) -> list[Any]:
    """What each `curl` of the page answers."""
    blocks = re.findall(r"```\n(curl .*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    found = []
    for block in blocks:
        command = block.replace(ADDRESS, url)
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=True, timeout=30)
        found.append(orjson.loads(done.stdout) if done.stdout else None)
    return found


def test_the_page_works_as_printed(url: str) -> None:
    ready, preview, made, read, triggered, runs, patched, resumed, once, wrong, deleted = answers(url)
    assert ready == {"status": "ok"}
    assert [each["due"] for each in preview["times"]] == ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]
    assert (made["id"], made["state"]) == ("nightly-report", "active")
    assert read == made
    assert triggered["run_id"] in [run["run_id"] for run in runs["items"]]
    assert (patched["state"], patched["definition"]["payload"]) == ("paused", {"report": "revenue"})
    assert (resumed["state"], resumed["definition"]["note"]) == ("active", "until the figures are right")
    assert once["definition"]["schedule"] == {"at": "2030-10-01T12:00:00Z"}
    assert {each["pointer"] for each in wrong["errors"]} == {"/schedule", "/priorty"}
    assert deleted is None
