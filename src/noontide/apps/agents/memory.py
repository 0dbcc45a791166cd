"""What the agents remember between batches, as they hold it in memory; tables keep it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from noontide.apps.agents.rules import JobHealth
from noontide.records.agents_state import HEALTH, health_key

TOLD_MAX: Final = 1_000
"""Alerts of one partition that are remembered as told."""
_NEW: Final = JobHealth()
Alert = dict[str, Any]


class Healths:
    """What is known of jobs that notify somebody."""

    def __init__(self) -> None:
        self._healths: dict[str, tuple[int, JobHealth]] = {}

    def of(self, job_id: str) -> JobHealth:
        """What is known of a job."""
        return self._healths.get(job_id, (0, _NEW))[1]

    def put(self, partition: int, job_id: str, health: JobHealth) -> None:
        """Remember it. partition: of its executions."""
        self._healths[job_id] = partition, health

    def rows(self, job_ids: Iterable[str]) -> dict[str, dict[str, object] | None]:
        """The rows of some jobs."""
        return {health_key(job_id): self.of(job_id).document() for job_id in job_ids}

    def forget(self, partition: int) -> None:
        """Another process reads it now."""
        self._healths = {job_id: known for job_id, known in self._healths.items() if known[0] != partition}

    def load(self, rows: Iterable[tuple[str, Mapping[str, Any]]], partition_of: Callable[[str], int]) -> None:
        """Begin anew with what the table has; rows of other kinds are passed over."""
        prefix = f"{HEALTH}/"
        found = ((key.removeprefix(prefix), row) for key, row in rows if key.startswith(prefix))
        self._healths = {job_id: (partition_of(job_id), JobHealth.of(row)) for job_id, row in found}


class Told:
    """Which alerts were told lately, so that one that is written twice is told once."""

    def __init__(self) -> None:
        self._known: dict[int, OrderedDict[str, None]] = {}

    def load(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Begin anew with what the table has."""
        self._known = {}
        for alert_id, row in sorted(rows, key=lambda item: int(item[1]["at"])):
            self._known.setdefault(int(row["partition"]), OrderedDict())[alert_id] = None

    def fresh(self, batch: Sequence[Any]) -> list[Alert]:
        """The alerts of a batch of one partition that were not told, each once; what is no alert is passed over."""
        known = self._known.setdefault(batch[0].partition, OrderedDict())
        found: dict[str, Alert] = {}
        for record in batch:
            alert = _alert(record.value)
            if alert is not None and alert["alert_id"] not in known:
                found.setdefault(str(alert["alert_id"]), alert)
        return list(found.values())

    def rows(
        self, partition: int, alerts: Sequence[Alert], told: Sequence[Mapping[str, str | None]], *, now_ms: int
    ) -> dict[str, dict[str, object] | None]:
        """Remember that they were told; the rows that follow, those of the oldest that are forgotten among them."""
        known = self._known.setdefault(partition, OrderedDict())
        rows: dict[str, dict[str, object] | None] = {}
        for alert, outcome in zip(alerts, told, strict=True):
            known[alert["alert_id"]] = None
            rows[alert["alert_id"]] = {"at": now_ms, "partition": partition, "channels": dict(outcome)}
        while len(known) > TOLD_MAX:
            rows[known.popitem(last=False)[0]] = None
        return rows


def _alert(value: bytes | None) -> Alert | None:
    try:
        alert = orjson.loads(value or b"")
        _ = alert["alert_id"] + alert["kind"] + alert["job_id"] + alert["tenant"]
    except (ValueError, TypeError, KeyError):
        return None
    return alert if isinstance(alert, dict) else None
