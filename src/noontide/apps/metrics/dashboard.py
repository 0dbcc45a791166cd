"""The Grafana dashboard and the alert rules: `python -m noontide.apps.metrics.dashboard FOLDER` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import orjson
import yaml


class Panel(NamedTuple):
    """One panel: its title, the unit as Grafana names it, and queries with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


class Alert(NamedTuple):
    """One alert rule: name, query, how long it must hold, severity, and what it means and asks for."""

    name: str
    query: str
    holds: str
    severity: str
    summary: str


def _quantiles(metric: str, by: str = "") -> tuple[tuple[str, str], ...]:
    group = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (f"histogram_quantile({each}, sum by ({group}) (rate({metric}_bucket[5m])))", f"p{each * 100:g}{legend}")
        for each in (0.5, 0.99)
    )


PANELS: Final = (
    Panel("Runs per second", "ops", (("sum by (outcome) (rate(noontide_runs_total[5m]))", "{{outcome}}"),)),
    Panel("Schedule lag", "s", _quantiles("noontide_schedule_lag_seconds")),
    Panel("Start lag (workers)", "s", _quantiles("noontide_start_lag_seconds")),
    Panel("Commit latency", "s", _quantiles("noontide_commit_seconds")),
    Panel(
        "Failure rate",
        "percentunit",
        (
            (
                (
                    'sum(rate(noontide_runs_total{outcome="dead"}[5m])) '
                    '/ sum(rate(noontide_runs_total{outcome=~"succeeded|dead"}[5m]))'
                ),
                "dead",
            ),
            (
                (
                    '(sum(rate(noontide_attempts_ended_total{outcome!="succeeded"}[5m])) or vector(0)) '
                    "/ sum(rate(noontide_attempts_ended_total[5m]))"
                ),
                "attempts",
            ),
        ),
    ),
    Panel("Ready runs", "short", (("sum by (lane) (noontide_ready_runs)", "{{lane}}"),)),
    Panel("Live runs", "short", (("sum by (state) (noontide_live_runs)", "{{state}}"),)),
    Panel("Lost attempts", "ops", (("sum by (kind) (rate(noontide_losses_total[5m]))", "{{kind}}"),)),
    Panel("Claims", "ops", (("sum by (answer) (rate(noontide_claims_total[5m]))", "{{answer}}"),)),
    Panel("Attempts", "s", _quantiles("noontide_attempt_seconds")),
    Panel("Places taken", "short", (("sum by (instance) (noontide_places_taken)", "{{instance}}"),)),
    Panel(
        "Requests",
        "ops",
        (
            ("sum by (verdict) (rate(noontide_requests_total[5m]))", "{{verdict}}"),
            ("sum(rate(noontide_misrouted_total[5m]))", "misrouted"),
        ),
    ),
    Panel("Requests waiting", "short", (("sum by (slot) (noontide_requests_waiting)", "slot {{slot}}"),)),
    Panel("Permits", "short", (("sum by (kind) (noontide_permits)", "{{kind}}"),)),
    Panel(
        "Doubts, fences, take-overs",
        "short",
        (
            ("sum(increase(noontide_doubts_total[5m]))", "doubts"),
            ("sum(increase(noontide_fenced_total[5m]))", "fenced"),
            ("sum(increase(noontide_take_overs_total[5m]))", "take-overs"),
        ),
    ),
    Panel("Slots owned", "short", (("sum by (instance) (noontide_slot_owned)", "{{instance}}"),)),
    Panel("Latest take-over", "s", (("max by (slot) (noontide_restore_seconds)", "slot {{slot}}"),)),
    Panel("Due rows in memory", "short", (("sum(noontide_due_rows)", "rows"),)),
    Panel("API requests", "reqps", (("sum by (status) (rate(noontide_api_requests_total[5m]))", "{{status}}"),)),
    Panel("API latency", "s", _quantiles("noontide_api_seconds")),
    Panel(
        "Runs by tenant, five minutes",
        "short",
        (("sum by (tenant, state) (noontide_usage_runs > 0)", "{{tenant}} {{state}}"),),
    ),
    Panel("Alerts told", "short", (("sum by (outcome) (increase(noontide_alerts_told_total[1h]))", "{{outcome}}"),)),
    Panel("Agents behind", "s", (("max by (instance) (noontide_agents_behind_seconds)", "{{instance}}"),)),
    Panel("Memory", "bytes", (("sum by (instance) (process_resident_memory_bytes)", "{{instance}}"),)),
    Panel("Processor", "short", (("sum by (instance) (rate(process_cpu_seconds_total[5m]))", "{{instance}}"),)),
)

ALERTS: Final = (
    Alert(
        "NoontideSlotWithoutOwner",
        "count(count by (slot) (noontide_restore_seconds)) > count(sum by (slot) (noontide_slot_owned) > 0) "
        "or absent(noontide_slot_owned)",
        "1m",
        "critical",
        "A slot is at work nowhere and its jobs wait: schedulers are missing, or a topic is below its in-sync copies.",
    ),
    Alert(
        "NoontideRunsLate",
        "histogram_quantile(0.99, sum by (le) (rate(noontide_schedule_lag_seconds_bucket[5m]))) > 5",
        "5m",
        "warning",
        "Occurrences fire more than five seconds late. Look at commit latency, ready runs and the processor.",
    ),
    Alert(
        "NoontideRunsDie",
        'sum(rate(noontide_runs_total{outcome="dead"}[10m])) '
        '/ sum(rate(noontide_runs_total{outcome=~"succeeded|dead"}[10m])) > 0.05',
        "10m",
        "warning",
        "More than one run in twenty is dead after its attempts.",
    ),
    Alert(
        "NoontideLeasesLost",
        'sum(rate(noontide_losses_total{kind="leases_lost"}[5m])) > 0.1',
        "5m",
        "warning",
        "Workers lose their leases: they die, or stop answering.",
    ),
    Alert(
        "NoontideLaneWithoutWorkers",
        "sum by (lane) (noontide_ready_runs) > 0 and on (lane) "
        '(sum by (lane) (noontide_live_runs{state="running"}) or sum by (lane) (noontide_ready_runs) * 0) == 0',
        "5m",
        "warning",
        "Runs wait in a lane in which nothing runs.",
    ),
    Alert(
        "NoontideDoubts",
        "sum(increase(noontide_doubts_total[10m])) > 3",
        "0m",
        "warning",
        "Commits are not answered in time; slots replay. Look at the brokers and at targets with a sick topic.",
    ),
    Alert(
        "NoontideClockInDoubt",
        "min(noontide_clock_trusted) == 0",
        "1m",
        "critical",
        "A broker's clock has jumped: nothing fires until its time is confirmed.",
    ),
    Alert(
        "NoontideAlertsNotTold",
        'sum(increase(noontide_alerts_told_total{outcome="failed"}[10m])) > 0',
        "0m",
        "warning",
        "A channel did not take an alert; GET /v1/alerts says which and why.",
    ),
    Alert(
        "NoontideAgentsBehind",
        "max(noontide_agents_behind_seconds) > 60",
        "5m",
        "warning",
        "The agents read executions that are older than a minute: alerts come late.",
    ),
    Alert(
        "NoontideRequestsRejected",
        'sum(rate(noontide_requests_total{verdict="rejected"}[10m])) > 1',
        "10m",
        "info",
        "Somebody sends requests that cannot be accepted; the reasons are on the topic rejected.",
    ),
)


def dashboard() -> str:
    """The dashboard as JSON, for import into Grafana 10 or newer."""
    board = {
        "title": "Noontide",
        "uid": "noontide",
        "schemaVersion": 39,
        "tags": ["noontide"],
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }
    return orjson.dumps(board, option=orjson.OPT_INDENT_2).decode() + "\n"


def _panel(number: int, panel: Panel) -> dict[str, object]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"h": 8, "w": 8, "x": number % 3 * 8, "y": number // 3 * 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend, "datasource": source}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def alert_rules() -> str:
    """The rules as YAML for Prometheus."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.query,
            "for": alert.holds,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary},
        }
        for alert in ALERTS
    ]
    return yaml.safe_dump({"groups": [{"name": "noontide", "rules": rules}]}, sort_keys=False, width=110)


def dashboard_files() -> dict[str, str]:
    """Contents by path below `deploy/`."""
    return {"grafana/noontide.json": dashboard(), "prometheus/alerts.yaml": alert_rules()}


if __name__ == "__main__":
    import sys

    for name, text in dashboard_files().items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
