"""The page `workers-in-other-languages.md`, run as it is printed in one shell, and the same with the client."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation
from tests.integration.scheduler_process import SchedulerProcess

from noontide.adapters.kafka.topics import ensure_topics
from noontide.client import Client, Conflict

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "workers-in-other-languages.md"
ADDRESS = "http://127.0.0.1:8480"


@pytest.fixture
def url(kafka: RunningKafka, prefix: str, tmp_path: Path) -> Iterator[str]:
    with Installation.create(kafka.bootstrap, prefix, partitions=8, slots=2) as installation:
        ensure_topics(kafka.bootstrap, installation.layout)
        with (
            SchedulerProcess(installation, tmp_path / "data", secret=SECRET) as scheduler,
            ApiProcess(installation, tmp_path) as api,
        ):
            scheduler.start().until_owner()
            yield api.url


def test_the_page_works_as_printed_and_the_client_does_the_same(url: str) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    script = "\n".join(f"{block}\necho" for block in blocks).replace(ADDRESS, url)
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, timeout=60)
    made, triggered, leased, beaten, ended = (
        orjson.loads(line) for line in done.stdout.replace(b"}{", b"}\n{").splitlines() if line
    )
    (run,) = leased["runs"]
    assert (made["id"], run["run_id"], run["payload"]) == ("thumbnails", triggered["run_id"], {"width": 200})
    assert beaten["runs"] == [{"run_id": run["run_id"], "token": run["token"], "state": "running"}]
    assert (ended["accepted"], ended["state"]) == (True, "succeeded")
    with Client(url) as client:
        run_id = client.trigger_job("thumbnails")
        worker, (mine,) = client.lease(["resize"], wait_ms=20_000)
        assert (mine.run_id, mine.payload, mine.attempt) == (run_id, {"width": 200}, 1)
        assert client.heartbeat(worker, [mine], progress=0.1) == {run_id: "running"}
        assert client.complete(worker, mine, "failed", error="no such file", permanent=True) == "dead"
        with pytest.raises(Conflict):
            client.complete(worker, mine, "succeeded")
