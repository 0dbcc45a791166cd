"""How long a run waits before its next attempt. Jitter comes from a hash, so that a replayed decision is the same."""

from __future__ import annotations

from zlib import crc32

from noontide.core.policies import ExponentialBackoff, FixedDelays, Jitter, RetryPolicy

_SHIFT_MAX = 40  # 2^40 ms are 34 years: beyond any cap, and safe from overflow whatever the attempt


def backoff_ms(policy: RetryPolicy, *, run_id: str, attempt: int) -> int:
    """Wait after failed attempt `attempt` (1 = the first), in ms: 1 .. cap.

    Exponential: at most min(cap, base x 2^attempt), uniform below it with full jitter. A list: its entries in turn,
    the last one for all that follow.
    """
    match policy.backoff:
        case FixedDelays(delays_ms=delays):
            return delays[min(attempt, len(delays)) - 1]
        case ExponentialBackoff(base_ms=base, cap_ms=cap, jitter=jitter):
            bound = min(cap, base << min(attempt, _SHIFT_MAX))
            if jitter is Jitter.NONE:
                return bound
            return 1 + (bound - 1) * crc32(f"{run_id}#{attempt}".encode()) // 2**32


def may_retry(policy: RetryPolicy, *, attempt: int) -> bool:
    """Whether another attempt may follow the failed one."""
    return attempt < policy.max_attempts
