"""Recent executions from the owner and older ones from a real PostgreSQL, as one list; also while that does not answer.

Rows are put where Kafka Connect would put them; `test_history_sink.py` has the sink itself.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import pytest
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation
from tests.integration.scheduler_process import SchedulerProcess
from tests.integration.test_api_jobs import create, problem
from tests.integration.test_api_runs import pages, run_of
from tests.postgres_scene import postgres

from noontide.adapters.postgres.server import EmbeddedPostgres
from noontide.adapters.postgres.table import create_table, history_database
from noontide.client import Client, ClientSettings, Unavailable

FAR = {"schedule": {"every": "P1D"}, "timing": "exact"}
OLD = 25
RECENT = 4


@pytest.fixture(scope="module")
def database() -> Iterator[EmbeddedPostgres]:
    with postgres() as server:
        with history_database(server.url) as connection:
            create_table(connection)
        yield server


@pytest.fixture(scope="module")
def site(
    kafka: RunningKafka, database: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, Installation]]:
    folder = tmp_path_factory.mktemp("api")
    options = ("--no-access", "--history-url", database.url, "--setting", "history_wait_ms=500")
    with Installation.create(kafka.bootstrap, "api-past.", partitions=8, slots=2) as installation:
        installation.create_target("orders")
        with (
            SchedulerProcess(installation, folder / "data", secret=SECRET) as scheduler,
            ApiProcess(installation, folder, options=options) as process,
        ):
            scheduler.start().until_owner()
            with httpx.Client(base_url=process.url, timeout=30) as client:
                yield client, installation
            assert "Traceback" not in process.log + scheduler.log


def remember(database: EmbeddedPostgres, installation: Installation, job_id: str) -> list[str]:
    """Rows of everything the topic has of a job, and older ones that it has no more; gives their run ids."""
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(days=40)
    times = [begin + timedelta(days=number) for number in range(OLD)]
    old = [(f"{job_id}:{due:%Y%m%dT%H%M%SZ}", due.isoformat()) for due in times]
    lines = [each.document for each in installation.log("executions").look() if each.document["job_id"] == job_id]
    new = [(str(line["run_id"]), str(line["due"])) for line in lines]
    with history_database(database.url) as connection:
        for run_id, due in old + new:
            connection.execute(
                "INSERT INTO noontide.executions (run_id, job_id, tenant, due, state) "
                "VALUES (%s, %s, 'default', %s, 'succeeded')",
                (run_id, job_id, due),
            )
    return [run_id for run_id, _ in old]


def test_one_cursor_over_both(site: tuple[httpx.Client, Installation], database: EmbeddedPostgres) -> None:
    api, installation = site
    create(api, id="both", target=f"kafka://{installation.foreign('orders')}", **FAR)
    recent = [run_of(api, "both")["run_id"] for _ in range(RECENT)]
    old = remember(database, installation, "both")
    for limit in (1, 3, RECENT, 1_000):
        found = [item["run_id"] for page in pages(api, "/v1/jobs/both/executions", limit=limit) for item in page]
        assert found == recent[::-1] + old[::-1], limit
    assert api.get(f"/v1/runs/{old[0]}").json()["state"] == "succeeded"
    with Client(str(api.base_url)) as client:
        assert [run.run_id for run in client.executions("both")] == recent[::-1] + old[::-1]


def test_the_list_of_runs_goes_on_into_the_history(
    site: tuple[httpx.Client, Installation], database: EmbeddedPostgres
) -> None:
    api, installation = site
    create(api, id="listed", target=f"kafka://{installation.foreign('orders')}", **FAR)
    recent = [str(run_of(api, "listed")["run_id"]) for _ in range(RECENT)]
    old = remember(database, installation, "listed")
    for limit in (1, 3, 1_000):
        for query in ({}, {"state": "succeeded"}, {"tenant": "default"}):
            turned = pages(api, "/v1/runs", job="listed", limit=limit, **query)
            assert [item["run_id"] for page in turned for item in page] == recent[::-1] + old[::-1], (query, limit)
    for query in ({"state": "failed"}, {"tenant": "billing"}):
        assert not any(pages(api, "/v1/runs", job="listed", limit=3, **query)), query
    with Client(str(api.base_url)) as client:
        assert [run.run_id for run in client.runs(job="listed")] == recent[::-1] + old[::-1]
    assert api.get("/v1/runs").json()["older"] == "history"


def test_a_database_that_does_not_answer_holds_nobody_up(
    site: tuple[httpx.Client, Installation], database: EmbeddedPostgres
) -> None:
    api, installation = site
    create(api, id="slow", target=f"kafka://{installation.foreign('orders')}", **FAR)
    recent = [run_of(api, "slow")["run_id"] for _ in range(RECENT)]
    old = remember(database, installation, "slow")
    assert api.get("/v1/jobs/slow/executions").json()["older"] == "history"  # with a connection that is kept
    stopped = _stop(database)
    try:
        began_s = time.monotonic()
        first = api.get("/v1/jobs/slow/executions").json()
        assert time.monotonic() - began_s < 10
        assert ([each["run_id"] for each in first["items"]], first["older"]) == (recent[::-1], "unreachable")
        behind = api.get("/v1/jobs/slow/executions", params={"cursor": first["next_cursor"]})
        assert problem(behind) == (503, "unavailable")
        assert problem(api.get(f"/v1/runs/{old[0]}")) == (503, "unavailable")
        with Client(str(api.base_url), settings=ClientSettings(attempts_max=1)) as client:
            runs = client.executions("slow")
            assert [next(runs).run_id for _ in range(RECENT)] == recent[::-1]
            with pytest.raises(Unavailable, match="older executions"):
                next(runs)
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)
    deadline_s = time.monotonic() + 60
    while api.get("/v1/jobs/slow/executions").json()["older"] != "history":
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    rest = api.get("/v1/jobs/slow/executions", params={"cursor": first["next_cursor"], "limit": 1_000}).json()
    found = [each["run_id"] for each in first["items"]] + [each["run_id"] for each in rest["items"]]
    assert list(dict.fromkeys(found)) == recent[::-1] + old[::-1]


def _stop(database: EmbeddedPostgres) -> list[psutil.Process]:
    """The server and the processes of its connections stand still: the kernel takes connections, nobody answers."""
    cluster = Path(database.data_dir) / "data"
    server = psutil.Process(int((cluster / "postmaster.pid").read_text().split()[0]))
    processes = [server, *server.children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    return processes
