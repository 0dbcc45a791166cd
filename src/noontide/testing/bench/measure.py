"""What processes cost: processor time and memory, as the system counts them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import psutil

MIB = 1024 * 1024


@dataclass(slots=True)
class Meter:
    """Processor time of a process since `reset`, and its largest memory at the moments it was looked at."""

    pid: int
    peak_rss_mb: float = 0.0
    _process: psutil.Process = field(init=False, repr=False)
    _since_s: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._process = psutil.Process(self.pid)
        self.reset()

    def reset(self) -> None:
        """Count from now on."""
        self._since_s = self._used_s(), time.monotonic()
        self.look()

    def look(self) -> float:
        """Resident memory now, in MiB."""
        rss_mb = float(self._process.memory_info().rss) / MIB
        self.peak_rss_mb = max(self.peak_rss_mb, rss_mb)
        return rss_mb

    def cores(self) -> float:
        """Cores in use since `reset`, 1.0 being one of them all the time."""
        return _rate(self._since_s, self._used_s())

    def _used_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


@dataclass(slots=True)
class Machine:
    """Processor time of everything on this machine: shows whether something else ran beside the bench."""

    _since_s: tuple[float, float] = field(default_factory=lambda: (_busy_s(), time.monotonic()), repr=False)

    def reset(self) -> None:
        """Count from now on."""
        self._since_s = _busy_s(), time.monotonic()

    def cores(self) -> float:
        """Cores in use since `reset`."""
        return _rate(self._since_s, _busy_s())


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The processes of a bench, measured together."""

    scheduler: Meter
    broker: Meter
    machine: Machine = field(default_factory=Machine)

    def reset(self) -> None:
        """Count from now on."""
        for each in (self.scheduler, self.broker, self.machine):
            each.reset()

    def cores(self) -> dict[str, object]:
        """Cores in use since `reset`, as figures of a report."""
        return {
            "cpu_scheduler": self.scheduler.cores(),
            "cpu_broker": self.broker.cores(),
            "cpu_machine": self.machine.cores(),
        }


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _rate(since_s: tuple[float, float], used_s: float) -> float:
    return (used_s - since_s[0]) / max(time.monotonic() - since_s[1], 1e-9)


def percentile(ordered: list[int] | list[float], share: float) -> float:
    """The nearest-rank percentile of sorted values; 0 when there are none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def percentiles(ordered: list[int], *, prefix: str = "") -> dict[str, float]:
    """The figures of a report: median, 99th percentile and maximum of sorted milliseconds."""
    shares = {"p50_ms": 0.50, "p99_ms": 0.99, "max_ms": 1.0}
    return {prefix + name: percentile(ordered, share) for name, share in shares.items()}
