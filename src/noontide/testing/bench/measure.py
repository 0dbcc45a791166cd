"""What processes cost: processor time and memory, as the system counts them."""

from __future__ import annotations

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
    _cpu_s: float = field(init=False, repr=False)
    _at_s: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._process = psutil.Process(self.pid)
        self.reset()

    def reset(self) -> None:
        """Count from now on."""
        self._cpu_s, self._at_s = self._used_s(), time.monotonic()
        self.look()

    def look(self) -> float:
        """Resident memory now, in MiB."""
        rss_mb = float(self._process.memory_info().rss) / MIB
        self.peak_rss_mb = max(self.peak_rss_mb, rss_mb)
        return rss_mb

    def cores(self) -> float:
        """Cores in use since `reset`, 1.0 being one of them all the time."""
        return (self._used_s() - self._cpu_s) / max(time.monotonic() - self._at_s, 1e-9)

    def _used_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def percentile(ordered: list[int] | list[float], share: float) -> float:
    """The nearest-rank percentile of sorted values; 0 when there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -(-int(len(ordered) * share * 1_000_000) // 1_000_000) - 1))]
