"""How often each principal may ask: a bucket of requests that fills up again at a steady rate."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from noontide.adapters.system_clock import boot_ms


class _Bucket(NamedTuple):
    """left: requests at `at_ms`."""

    left: float
    at_ms: float


class Rates:
    """Buckets by name, of one API node.

    names_max: the principals that asked most recently; one that is forgotten begins with a full bucket again.
    """

    def __init__(self, *, names_max: int, clock_ms: Callable[[], float] = boot_ms) -> None:
        self._names_max = names_max
        self._clock_ms = clock_ms
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str, *, per_second: int, burst: int) -> float:
        """Take one request out; 0 when there was one, else the seconds until there will be.

        burst: requests in a full bucket.
        """
        now_ms = self._clock_ms()
        bucket = self._buckets.pop(name, None)
        left: float = burst
        if bucket is not None:
            left = min(burst, bucket.left + (now_ms - bucket.at_ms) / 1000 * per_second)
        granted = left >= 1
        self._buckets[name] = _Bucket(left - 1 if granted else left, now_ms)
        if len(self._buckets) > self._names_max:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - left) / per_second
