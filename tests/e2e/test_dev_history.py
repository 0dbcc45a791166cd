"""`noontide dev --history`: runs are rows in PostgreSQL seconds after they ended, whatever dies."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator

import httpx
import psycopg
import pytest
from tests.e2e.test_dev import Dev
from tests.postgres_scene import open_folder

from noontide.adapters.kafka.embedded.folder import command_line

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
WITHIN_S = 40


@pytest.fixture
def dev() -> Iterator[Dev]:
    with open_folder() as folder:
        made = Dev(folder)
        try:
            yield made
        finally:
            made.close()


def rows(url: str) -> int:
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            row = connection.execute("SELECT count(*) FROM noontide.executions WHERE job_id = 'ticks'").fetchone()
    except psycopg.OperationalError:
        return -1
    return 0 if row is None else int(row[0])


def until_more(dev: Dev, url: str, than: int) -> int:
    """Wait until there are more rows."""
    deadline_s = time.monotonic() + WITHIN_S
    while (found := rows(url)) <= than:
        assert time.monotonic() < deadline_s, f"{found} rows\n{dev.output}"
        time.sleep(0.1)
    return found


def test_runs_are_rows_and_what_dies_is_started_again(dev: Dev) -> None:
    dev.start("--history")
    found = re.search(r"PostgreSQL at (\S+) ", dev.output)
    assert found is not None
    url = found[1]
    dev.run("jobs", "add", "--every", "1s", "--topic", "hello", "--create-topic", "--id", "ticks")
    seen = until_more(dev, url, 1)

    postgres = int((dev.folder / "data" / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    assert "postgres" in command_line(postgres)
    os.kill(postgres, signal.SIGQUIT)
    seen = until_more(dev, url, seen)
    assert "history_process_started_again process=PostgreSQL" in dev.output

    runs = {run["run_id"] for run in dev.runs_of("ticks", seen)}
    assert len(runs) >= seen
    old = _remembered(url)
    listed = _listed(dev)
    assert listed[-1] == old
    assert len(set(listed)) == len(listed) > seen
    status = dev.run("history", "status", "--url", url)[0]
    assert status["missing_columns"] == []
    assert dev.end(signal.SIGTERM) == 0
    assert "Traceback" not in dev.output


def _remembered(url: str) -> str:
    """A run of long ago, which the topic does not have; its id."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO noontide.executions (run_id, job_id, tenant, due, state) "
            "VALUES ('ticks:20200101T000000Z', 'ticks', 'default', '2020-01-01T00:00:00Z', 'succeeded')"
        )
    return "ticks:20200101T000000Z"


def _listed(dev: Dev) -> list[str]:
    """Run ids of all pages of the job's executions, the latest first."""
    found = re.search(r"the API at (\S+)/v1,", dev.output)
    assert found is not None
    listed: list[str] = []
    cursor: dict[str, str] = {}
    with httpx.Client(base_url=found[1], timeout=30) as client:
        while True:
            page = client.get("/v1/jobs/ticks/executions", params={"limit": 3, **cursor}).json()
            assert page["older"] == "history"
            listed += [each["run_id"] for each in page["items"]]
            if page["next_cursor"] is None:
                return listed
            cursor = {"cursor": page["next_cursor"]}
