"""Metrics of real processes, and every query of the dashboard and of the alerts asked of a real Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from tests.conftest import RunningKafka
from tests.integration.installation import eventually
from tests.integration.worker_scene import HANDLERS, Scene
from tests.prometheus_server import Prometheus, prometheus

from noontide.apps.metrics.dashboard import ALERTS, PANELS, Panel, dashboard_files
from noontide.testing.child_process import ChildProcess, noontide

DEPLOY = Path(__file__).parents[2] / "deploy"
SILENT = {
    "noontide_permits": "there are no limits here",
    "noontide_ready_runs": "nothing waits",
    "noontide_live_runs": "runs end at once",
    "noontide_alerts_told": "nobody is to be told",
}
"""Metrics that have no value in the scene, and why."""


class Watched(NamedTuple):
    """What is running: addresses of the metrics by role, and the Prometheus that reads them."""

    ports: dict[str, str]
    prometheus: Prometheus

    def page(self, role: str) -> str:
        """What a process tells now."""
        return httpx.get(f"http://{self.ports[role]}/metrics", timeout=10).text


@pytest.fixture(scope="module")
def watched(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("metrics")
    with Scene.set(kafka.bootstrap, folder) as scene:
        installation = scene.installation
        target = installation.create_target("orders")
        place = ("--bootstrap", installation.bootstrap, "--prefix", installation.layout.prefix, "--metrics-port", "0")
        commands = {
            "scheduler": ("scheduler", "--data", str(folder / "data")),
            "worker": ("worker", HANDLERS),
            "api": ("api", "--port", "0", "--no-access"),
            "agents": ("agents", "--data", str(folder / "agents")),
        }
        variables = {
            "STARTS_BOOTSTRAP": installation.bootstrap,
            "STARTS_TOPIC": scene.starts_topic,
            "NOONTIDE_INTERNAL_SECRET": "a secret of this test",
        }
        ports = {}
        for role, command in commands.items():
            child = ChildProcess(command=noontide(*command, *place), log=folder / f"{role}.log", variables=variables)
            scene.processes.append(child.start())
        for (role, _), process in zip(commands.items(), scene.processes, strict=True):
            assert isinstance(process, ChildProcess)
            process.until_logged("metrics_served address=")
            found = re.search(r"metrics_served address=(\S+)", process.text)
            assert found is not None
            ports[role] = found[1]
        schedule = {"every": "PT1S"}
        installation.request("ticks", {"schedule": schedule, "target": f"kafka://{target}"})
        installation.request("works", {"schedule": schedule, "target": "handler:act", "timing": "exact"})
        installation.request("broken", {"schedule": "nonsense", "target": "handler:act"})
        with prometheus(list(ports.values()), rules=DEPLOY / "prometheus" / "alerts.yaml") as server:
            watched = Watched(ports, server)
            eventually(lambda: 'outcome="succeeded"' in watched.page("worker"), what="a handler has run")
            httpx.get(_api_url(folder) + "/healthz", timeout=10)
            eventually(lambda: "noontide_usage_runs{" in watched.page("agents"), what="agents have counted")
            eventually(
                lambda: (
                    bool(server.query("rate(noontide_attempts_ended_total[5m]) > 0"))
                    and bool(server.query("rate(noontide_commit_seconds_count[5m]) > 0"))
                    and bool(server.query("noontide_usage_runs > 0"))
                ),
                what="Prometheus has seen runs twice",
            )
            yield watched


def _api_url(folder: Path) -> str:
    found = re.search(r"API at (\S+)", (folder / "api.log").read_text("utf-8"))
    assert found is not None
    return found[1]


def test_the_shipped_files_are_current() -> None:
    assert {name: (DEPLOY / name).read_text("utf-8") for name in dashboard_files()} == dashboard_files()


def assert_lines(page: str, *patterns: str) -> None:
    """Each stands somewhere on the page."""
    for pattern in patterns:
        assert re.search(pattern, page), pattern


def test_a_scheduler_tells_what_its_slots_did(watched: Watched) -> None:
    page = watched.page("scheduler")
    assert_lines(
        page,
        r'noontide_slot_owned\{slot="[01]"\} 1.0',
        r'noontide_runs_total\{outcome="succeeded",slot="[01]"\} [1-9]',
        r'noontide_requests_total\{slot="[01]",verdict="accepted"\} [1-9]',
        r'noontide_requests_total\{slot="[01]",verdict="rejected"\} 1.0',
        r'noontide_schedule_lag_seconds_count\{slot="[01]"\} [1-9]',
        r'noontide_claims_total\{answer="granted",slot="[01]"\} [1-9]',
        r"noontide_clock_trusted 1.0",
        r'noontide_info\{role="scheduler",version="[^"]+"\} 1.0',
    )


def test_a_worker_tells_what_it_did(watched: Watched) -> None:
    page = watched.page("worker")
    assert_lines(
        page,
        r'noontide_attempts_ended_total\{lane="(express|default)",outcome="succeeded"\} [1-9]',
        r"noontide_start_lag_seconds_count [1-9]",
        r"noontide_attempt_seconds_count [1-9]",
    )


def test_agents_tell_what_tenants_used(watched: Watched) -> None:
    page = watched.page("agents")
    assert_lines(
        page,
        r"noontide_agents_read_total [1-9]",
        r'noontide_usage_runs\{state="succeeded",tenant="default"\} [1-9]',
        r'noontide_usage_seconds\{of="late",quantile="0.99",tenant="default"\} \d',
    )


def test_an_api_process_counts_by_route_and_not_by_path(watched: Watched) -> None:
    page = watched.page("api")
    assert re.search(r'noontide_api_requests_total\{method="GET",route="[^"]*",status="\d+"\} 1.0', page)
    assert "noontide_api_seconds_bucket" in page


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_query_of_the_dashboard_has_an_answer(watched: Watched, panel: Panel) -> None:
    for query, _ in panel.queries:
        answer = watched.prometheus.query(query)
        assert answer or any(name in query for name in SILENT), query


def test_every_metric_that_is_asked_for_exists(watched: Watched) -> None:
    told = {name for role in watched.ports for name in re.findall(r"^# TYPE (\S+)", watched.page(role), re.MULTILINE)}
    page = (DEPLOY.parent / "docs" / "reference" / "metrics.md").read_text("utf-8")
    assert [
        name
        for name in sorted(told)
        if name.startswith("noontide_") and f"`{name}`" not in page and f"`{name}_total`" not in page
    ] == []
    told |= {f"{name}_bucket" for name in told}
    asked = {
        name
        for query in [*(query for panel in PANELS for query, _ in panel.queries), *(alert.query for alert in ALERTS)]
        for name in re.findall(r"(?:noontide|process)_\w+", query)
    }
    assert asked - told == set()


def test_every_alert_rule_is_evaluated_and_none_fires_on_a_healthy_system(watched: Watched) -> None:
    def evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in watched.prometheus.rules())

    eventually(evaluated, what="all rules are evaluated")
    rules = {str(rule["name"]): rule for rule in watched.prometheus.rules()}
    assert rules.keys() == {alert.name for alert in ALERTS}
    assert {name: rule["health"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
    assert [name for name, rule in rules.items() if rule["state"] == "firing"] == []
