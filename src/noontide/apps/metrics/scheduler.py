"""What a scheduler process tells. Everything is read when it is asked for, in the thread of the port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from noontide.actors.pulse import Pulses
from noontide.actors.slot import Slot
from noontide.actors.supervisor import Supervisor
from noontide.adapters.system_clock import BrokerClock
from noontide.apps.metrics.families import Labels, counters, gauges, histograms

ENDS: Final = ("succeeded", "dead", "cancelled", "skipped", "missed", "coalesced", "dropped")
_VERDICTS: Final = ("accepted", "rejected")
_CLAIMS: Final = ("granted", "denied")
_LOSSES: Final = ("leases_lost", "timed_out", "queue_expired")
_NAMED: Final = {*ENDS, *_VERDICTS, *_CLAIMS, *_LOSSES, "retries", "misrouted"}


class SchedulerMetrics(Collector):
    """Metrics of the slots of one process."""

    def __init__(self, supervisor: Supervisor, pulses: Pulses, clock: BrokerClock) -> None:
        self._supervisor = supervisor
        self._pulses = pulses
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """All families; slots that this process never had are left out."""
        slots = {slot: runner.slot for slot, runner in list(self._supervisor.runners.items())}
        working = {slot: found for slot, found in slots.items() if found is not None}
        yield from self._times()
        yield from self._counts()
        yield from self._ownership(working)
        yield from _queues(working)

    def _times(self) -> Iterable[Metric]:
        pulses = list(self._pulses.items())
        yield histograms(
            "noontide_schedule_lag_seconds",
            "How late the oldest occurrence was that a cycle fired, one value per cycle.",
            ["slot"],
            {(str(slot),): pulse.late_ms for slot, pulse in pulses},
        )
        yield histograms(
            "noontide_commit_seconds",
            "How long the transaction of a cycle took.",
            ["slot"],
            {(str(slot),): pulse.commit_ms for slot, pulse in pulses},
        )

    def _counts(self) -> Iterable[Metric]:
        sums = {slot: pulse.counts.copy() for slot, pulse in list(self._pulses.items())}
        yield _counted("noontide_runs", "Runs and decisions that were closed.", "outcome", ENDS, sums)
        yield _counted("noontide_requests", "Requests that were decided.", "verdict", _VERDICTS, sums)
        yield _counted("noontide_claims", "Claims of workers that were answered.", "answer", _CLAIMS, sums)
        yield _counted("noontide_losses", "Attempts that were lost, and offers nobody took.", "kind", _LOSSES, sums)
        for name, text in (
            ("retries", "Attempts that failed and are tried again."),
            ("misrouted", "Requests that were in the wrong partition and forwarded."),
        ):
            values: dict[Labels, float] = {(str(slot),): float(counts[name]) for slot, counts in sums.items()}
            yield counters(f"noontide_{name}", text, ["slot"], values)
        others: dict[Labels, float] = {
            (str(slot), name): float(value)
            for slot, counts in sums.items()
            for name, value in counts.items()
            if name not in _NAMED
        }
        yield counters("noontide_events", "Whatever else was counted.", ["slot", "event"], others)

    def _ownership(self, working: Mapping[int, Slot]) -> Iterable[Metric]:
        pulses = list(self._pulses.items())
        runners = list(self._supervisor.runners.items())
        yield gauges("noontide_slot_owned", "1 for each slot at work here.", ["slot"], {(str(n),): 1 for n in working})
        yield counters(
            "noontide_doubts",
            "Commits whose outcome was unknown; the slot was replayed.",
            ["slot"],
            {(str(slot),): pulse.doubts for slot, pulse in pulses},
        )
        yield counters(
            "noontide_fenced",
            "Times another process took a slot that the group gives to this one.",
            ["slot"],
            {(str(slot),): self._supervisor.fenced[slot] for slot, _ in pulses},
        )
        yield counters(
            "noontide_take_overs",
            "Times a slot was taken, or replayed after a doubt.",
            ["slot"],
            {(str(slot),): pulse.take_overs for slot, pulse in pulses},
        )
        yield gauges(
            "noontide_restore_seconds",
            "How long the latest take-over took.",
            ["slot"],
            {(str(n),): runner.restore_ms / 1000 for n, runner in runners if runner.restore_ms is not None},
        )
        yield gauges("noontide_clock_trusted", "0 while the broker's time is in doubt and nothing fires.", [], {
            (): float(self._clock.trusted())
        })  # fmt: skip
        yield gauges("noontide_disk_failing", "1 while the disk does not carry the indexes of the slots.", [], {
            (): float(self._supervisor.disk.is_failing)
        })  # fmt: skip
        yield counters("noontide_clock_jumps", "Jumps of the broker's clock.", [], {(): float(self._clock.jumps())})


def _queues(working: Mapping[int, Slot]) -> Iterable[Metric]:
    depths, live, permits = dict[Labels, float](), Counter[Labels](), dict[Labels, float]()
    for slot, found in working.items():
        depths |= {(str(slot), lane): depth for lane, depth in found.ready.depths().items()}
        permits |= {(str(slot), kind): total for kind, total in found.exchange.permits.totals().items()}
        for partition in found.partitions.values():
            live.update((str(slot), run.lane, run.state.value) for run in list(partition.live.by_id.values()))
    yield gauges("noontide_ready_runs", "Runs that wait in the slot's queue for workers.", ["slot", "lane"], depths)
    yield gauges(
        "noontide_live_runs",
        "Runs between claim and end; lane is empty for topic targets.",
        ["slot", "lane", "state"],
        {label: float(count) for label, count in live.items()},
    )
    yield gauges("noontide_permits", "Permits of limits that span partitions.", ["slot", "kind"], permits)
    yield gauges(
        "noontide_requests_waiting",
        "Requests and messages read and not decided.",
        ["slot"],
        {(str(slot),): found.backlog for slot, found in working.items()},
    )
    yield gauges(
        "noontide_due_rows",
        "Due occurrences of the next minute that are held in memory.",
        ["slot"],
        {(str(n),): sum(len(each.window) for each in found.partitions.values()) for n, found in working.items()},
    )


def _counted(name: str, text: str, label: str, kinds: Iterable[str], sums: Mapping[int, Mapping[str, int]]) -> Metric:
    values: dict[Labels, float] = {
        (str(slot), kind): float(counts.get(kind, 0)) for slot, counts in sums.items() for kind in kinds
    }
    return counters(name, text, ["slot", label], values)
