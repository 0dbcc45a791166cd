"""An API node and then a scheduler are killed during a stream of creates: what was acknowledged exists once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess

CLIENTS = 4
FAR = {"run_at": "2096-01-01T00:00:00Z", "target": "handler:x"}


@dataclass
class Stream:
    """Clients that create jobs one after another at any API node that answers; each id is tried once only."""

    urls: list[str]
    asked: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    undecided: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    stopping: bool = False

    def run(self, number: int) -> None:
        """One client, until `stopping`."""
        with ExitStack() as stack:
            clients = [stack.enter_context(httpx.Client(base_url=url, timeout=30)) for url in self.urls]
            turn = 0
            while not self.stopping:
                turn += 1
                job_id = f"c{number}-{turn}"
                self.asked.add(job_id)
                try:
                    answer = clients[(number + turn) % len(clients)].post("/v1/jobs", json={"id": job_id, **FAR})
                except httpx.TransportError:
                    continue
                self.statuses[answer.status_code] += 1
                if answer.status_code == 201:
                    self.acknowledged.add(job_id)
                elif answer.status_code == 202:
                    self.undecided.add(job_id)

    def until_more(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        before = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) >= before + count, within_s=120, what=f"{count} more creates")


@pytest.fixture
def installation(kafka: RunningKafka, prefix: str) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, prefix) as installation:
        yield installation


def test_no_acknowledged_create_is_lost_and_none_is_there_twice(installation: Installation, tmp_path: Path) -> None:
    with (
        SchedulerProcess(installation, tmp_path / "a", secret=SECRET) as first,
        SchedulerProcess(installation, tmp_path / "b", secret=SECRET) as second,
        ApiProcess(installation, tmp_path, name="api-1") as api_1,
        ApiProcess(installation, tmp_path, name="api-2") as api_2,
    ):
        first.start().until_owner()
        stream = Stream([api_1.url, api_2.url])
        threads = [threading.Thread(target=stream.run, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            stream.until_more(100)
            api_1.kill()
            stream.until_more(50)
            api_1.start()
            stream.until_more(50)
            first.kill()
            second.start().until_owner()
            stream.until_more(100)
        finally:
            stream.stopping = True
            for thread in threads:
                thread.join(60)
        _judge(installation, stream, api_2.url)
        assert "Traceback" not in api_1.log + api_2.log


def _judge(installation: Installation, stream: Stream, url: str) -> None:
    """From the topic alone: each acknowledged job was defined exactly once, no other one more than once."""
    jobs = installation.log("jobs")
    jobs.until(lambda all_: stream.acknowledged <= {(each.key or b"").decode() for each in all_}, what="all are there")
    settled = time.monotonic() + 1.0
    jobs.until(lambda _: time.monotonic() > settled, what="nothing comes after")
    defined = Counter((each.key or b"").decode() for each in jobs.records)
    assert stream.acknowledged <= defined.keys()
    assert max(defined.values()) == 1
    assert defined.keys() <= stream.asked
    assert stream.statuses.keys() <= {201, 202, 503}, stream.statuses
    with httpx.Client(base_url=url, timeout=30) as client:
        for job_id in sorted(stream.acknowledged)[:: max(1, len(stream.acknowledged) // 20)]:
            assert client.get(f"/v1/jobs/{job_id}").status_code == 200
