"""`noontide dev --history`: runs are rows in PostgreSQL seconds after they ended, whatever dies."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator

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
    status = dev.run("history", "status", "--url", url)[0]
    assert status["missing_columns"] == []
    assert dev.end(signal.SIGTERM) == 0
    assert "Traceback" not in dev.output
