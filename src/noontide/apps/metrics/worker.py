"""What a worker process tells."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from noontide.apps.metrics.families import counters, gauges, histograms
from noontide.worker.desk import Desk
from noontide.worker.pulse import WorkerPulse


class WorkerMetrics(Collector):
    """Metrics of one worker."""

    def __init__(self, desk: Desk, pulse: WorkerPulse) -> None:
        self._desk = desk
        self._pulse = pulse

    def collect(self) -> Iterable[Metric]:
        """All families."""
        pulse = self._pulse
        yield histograms(
            "noontide_start_lag_seconds",
            "Start of an attempt minus the time it might have started, by this machine's date.",
            [],
            {(): pulse.late_ms},
        )
        yield histograms("noontide_attempt_seconds", "How long attempts took.", [], {(): pulse.ran_ms})
        yield counters("noontide_attempts_started", "Attempts that began here.", [], {(): pulse.started})
        yield counters(
            "noontide_attempts_ended",
            "Attempts that ended here.",
            ["lane", "outcome"],
            {label: float(count) for label, count in pulse.ends.copy().items()},
        )
        yield counters("noontide_invitations", "Runs that the group delivered.", [], {(): pulse.delivered})
        yield counters(
            "noontide_answers",
            "Answers of owners to claims and heartbeats.",
            ["answer"],
            {(label,): float(count) for label, count in pulse.answers.copy().items()},
        )
        yield gauges("noontide_places_taken", "Places claimed or running.", [], {(): self._desk.busy})
        yield gauges("noontide_places_stuck", "Places lost to attempts that do not end.", [], {(): self._desk.stuck})
