"""Which alerts follow from how runs end: a pure function of what is known of the job, its wish, and one execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from noontide.apps.agents.ledger import Ended
from noontide.core.policies import NotifyOn

STREAK: Final = 3
LATE_AFTER_MS: Final = 60_000
ALERT_TEXT_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the job's `notify` says: kinds of alerts, channels of the configuration, and bounds.

    streak, late_after_ms: None = those of the agents. nothing_ran_after_ms: None = it is not asked for.
    since_ms: when the definition was written.
    """

    on: frozenset[str] = frozenset()
    to: tuple[str, ...] = ()
    tenant: str = ""
    streak: int | None = None
    late_after_ms: int | None = None
    nothing_ran_after_ms: int | None = None
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHealth:
    """What is remembered of a job.

    streak: dead runs in a row. late: its latest run began late. last_ms: latest end, kept for `nothing_ran` only.
    offset: of the latest execution that changed this.
    """

    streak: int = 0
    late: bool = False
    last_ms: int = 0
    offset: int = -1

    def document(self) -> dict[str, object] | None:
        """As it is stored; None when there is nothing to remember."""
        if not self.streak and not self.late and not self.last_ms:
            return None
        return {"streak": self.streak, "late": self.late, "last_ms": self.last_ms, "offset": self.offset}

    @classmethod
    def of(cls, document: Mapping[str, object]) -> JobHealth:
        """From what is stored. Raises TypeError for something else."""
        return cls(**document)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """What holds where a job says nothing. streak: dead runs in a row. late_after_ms: of a start."""

    streak: int = STREAK
    late_after_ms: int = LATE_AFTER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The new health, and the alerts: records of `alerts`."""

    health: JobHealth
    alerts: list[dict[str, object]] = field(default_factory=list)


def judge(health: JobHealth, wish: Wish, ended: Ended, settings: AlertSettings) -> Judged:
    """What one execution changes; one that was judged before, by its offset, changes nothing."""
    if ended.offset <= health.offset:
        return Judged(health=health)
    state, late_ms = ended.execution.state, ended.execution.late_ms
    dead, works = state == "dead", state == "succeeded"  # a decision not to run says nothing about the job
    ran = dead or works or state == "cancelled"
    streak = health.streak + 1 if dead else 0 if works else health.streak
    late_after_ms = settings.late_after_ms if wish.late_after_ms is None else wish.late_after_ms
    late = (late_ms or 0) > late_after_ms if ran else health.late
    facts: dict[NotifyOn, dict[str, object] | None] = {
        NotifyOn.DEAD: {} if dead else None,
        NotifyOn.STREAK: {"streak": streak} if dead and streak == (wish.streak or settings.streak) else None,
        NotifyOn.RECOVERED: {"streak": health.streak} if works and health.streak else None,
        NotifyOn.LEASE_LOST: {"count": ended.leases_lost} if ended.leases_lost else None,
        NotifyOn.LATE: {"late_ms": late_ms} if late and not health.late else None,
    }
    alerts = [
        _alert(kind, ended, wish, fields) for kind, fields in facts.items() if fields is not None and kind in wish.on
    ]
    last_ms = max(health.last_ms, ended.at_ms) if wish.nothing_ran_after_ms is not None and ran else health.last_ms
    new = replace(health, streak=streak, late=late and NotifyOn.LATE in wish.on, last_ms=last_ms)
    return Judged(health=health if new == health and not alerts else replace(new, offset=ended.offset), alerts=alerts)


def silent(job_id: str, wish: Wish, health: JobHealth, now_ms: int) -> dict[str, object] | None:
    """The alert of a job of which nothing ended for longer than it wishes; None when there is none."""
    if wish.nothing_ran_after_ms is None or NotifyOn.NOTHING_RAN not in wish.on:
        return None
    last_ms = max(health.last_ms, wish.since_ms)
    if now_ms - last_ms <= wish.nothing_ran_after_ms:
        return None
    return {
        "alert_id": f"{NotifyOn.NOTHING_RAN}:{job_id}:{last_ms}",
        "kind": NotifyOn.NOTHING_RAN.value,
        "job_id": job_id,
        "tenant": wish.tenant,
        "last_ms": last_ms,
        "to": list(wish.to),
    }


def _alert(kind: NotifyOn, ended: Ended, wish: Wish, fields: Mapping[str, object]) -> dict[str, object]:
    execution = ended.execution
    alert: dict[str, object] = {
        "alert_id": f"{kind}:{execution.run_id}:{ended.at_ms}",
        "kind": kind.value,
        "job_id": execution.job_id,
        "tenant": execution.tenant,
        "run_id": execution.run_id,
        **fields,
        "to": list(wish.to),
    }
    return {**alert, "reason": execution.reason[:ALERT_TEXT_MAX]} if execution.reason else alert
