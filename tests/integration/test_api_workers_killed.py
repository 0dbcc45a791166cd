"""An API node that has leased runs to workers in other languages dies (-9): nothing is lost, nothing stale is accepted.

What became of the runs is judged by the topics alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess
from tests.integration.test_api_jobs import create, problem
from tests.integration.test_api_workers import beat, end, held

from noontide.adapters.kafka.topics import ensure_topics

RUNS = 12
LANE = "express"
JOB = {"schedule": {"every": "P1D"}, "timing": "exact", "target": "handler:crash", "lane": LANE, "overlap": "allow",
       "lease": "PT5S", "retry": {"max_attempts": 9, "backoff": ["PT0.1S"]}}  # fmt: skip


@dataclass
class Site:
    """Two nodes of one installation."""

    installation: Installation
    first: ApiProcess
    one: httpx.Client
    two: httpx.Client


@pytest.fixture
def site(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("api")
    with Installation.create(kafka.bootstrap, "api-killed.", partitions=8, slots=2) as installation:
        ensure_topics(kafka.bootstrap, installation.layout)
        with (
            SchedulerProcess(installation, folder / "data", secret=SECRET) as scheduler,
            ApiProcess(installation, folder) as first,
            ApiProcess(installation, folder, name="second") as second,
        ):
            scheduler.start().until_owner()
            with (
                httpx.Client(base_url=first.url, timeout=60) as one,
                httpx.Client(base_url=second.url, timeout=60) as two,
            ):
                yield Site(installation, first, one, two)
            assert "Traceback" not in second.log + scheduler.log


def leased(api: httpx.Client, count: int, *, meanwhile: Callable[[], object] = int) -> list[dict[str, Any]]:
    """At least so many runs, with the workers that have them. meanwhile: done each second, well within a lease."""
    found: list[dict[str, Any]] = []

    def more() -> bool:
        meanwhile()
        asked = {"handlers": ["crash"], "lane": LANE, "max": count - len(found), "wait_ms": 1_000}
        answer = api.post("/v1/workers/lease", json=asked)
        assert answer.status_code == 200, answer.text
        found.extend({**run, "worker": answer.json()["worker"]} for run in answer.json()["runs"])
        return len(found) >= count

    eventually(more, within_s=120, what=f"{count} leases")
    return found


@pytest.mark.slow
def test_runs_leased_by_a_node_that_was_killed_run_again_and_end_once(site: Site) -> None:
    create(site.one, id="crash", **JOB)
    runs = {site.one.post("/v1/jobs/crash/trigger", json={"payload": n}).json()["run_id"] for n in range(RUNS)}
    first = leased(site.one, 6)
    ended, kept, *lost = first
    assert end(site.one, ended, "succeeded").json()["state"] == "succeeded"
    with ThreadPoolExecutor(1) as pool:  # one more waits at the node when it dies
        waiting = pool.submit(site.one.post, "/v1/workers/lease", json={"handlers": ["other"], "lane": LANE})
        site.first.kill()
        with pytest.raises(httpx.TransportError):
            waiting.result()

    # A worker that lives keeps its run through another node; the others have died with the node.
    def lives() -> None:
        assert beat(site.two, kept)["state"] == "running"

    again: list[dict[str, Any]] = []
    remaining = runs - {ended["run_id"], kept["run_id"]}
    while len(again) < len(remaining):
        again += leased(site.two, 1, meanwhile=lives)
        for stale in lost:
            if any(each["run_id"] == stale["run_id"] for each in again):
                assert problem(end(site.two, stale, "succeeded", result="stale")) == (409, "conflict")
                assert beat(site.two, stale)["state"] == "lost"
        assert end(site.two, again[-1], "succeeded", result="fresh").json()["state"] == "succeeded"
    assert end(site.two, kept, "succeeded").json()["state"] == "succeeded"
    assert {each["run_id"] for each in again} == remaining
    for stale in lost:
        (fresh,) = (each for each in again if each["run_id"] == stale["run_id"])
        assert (fresh["attempt"], fresh["token"] > stale["token"]) == (2, True)
        assert problem(end(site.two, stale, "succeeded", result="stale")) == (409, "conflict")
    _judge(site.installation, runs, stale={held(each)["run_id"]: each["token"] for each in lost})


def _judge(installation: Installation, runs: set[str], *, stale: dict[str, int]) -> None:
    """One end of each, none with the token of a lease that was lost."""
    log = installation.log("executions")
    eventually(lambda: {each.document["run_id"] for each in log.look()} >= runs, what="every run is closed")
    lines = [each.document for each in log.look()]
    assert Counter(str(line["run_id"]) for line in lines) == Counter(runs)
    assert {line["state"] for line in lines} == {"succeeded"}
    assert all(line["token"] != stale.get(str(line["run_id"])) for line in lines)
    results = [each.document for each in installation.log("results").look()]
    assert "stale" not in [each.get("result") for each in results]
    assert Counter(str(each["run_id"]) for each in results) == Counter(runs)
