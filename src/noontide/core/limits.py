"""Every bound that a definition or a request is held to, in one place, each with its unit in its name."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one definition may take. The defaults are the documented ones; an operator may set others.

    Sizes are bytes of the JSON text as it was sent, lengths are characters, counts are members or items.
    """

    payload_max_bytes: int = 256 * KIB
    envelope_max_bytes: int = 64 * KIB  # what a definition may weigh besides its payload
    depth_max: int = 64
    fields_max: int = 256  # members of one object outside of the payload
    name_max_chars: int = 100
    text_max_chars: int = 200
    note_max_chars: int = 2_000
    url_max_chars: int = 2_048
    labels_max: int = 64
    headers_max: int = 64
    header_max_chars: int = 4_096
    interval_min_ms: int = 1_000
    crons_per_union_max: int = 20
    upstreams_max: int = 64
    calendars_max: int = 16
    channels_max: int = 16
    attempts_max: int = 1_000
    delays_max: int = 100
    run_all_max: int = 10_000
    backfill_max_runs: int = 100_000
    timeout_max_ms: int = 30 * DAY_MS
    delay_max_ms: int = 30 * DAY_MS  # between two attempts
    warnings_max: int = 50

    def __hash__(self) -> int:
        """Cheap, because tables of readers are looked up by their limits for every definition."""
        return hash((self.payload_max_bytes, self.envelope_max_bytes))

    @property
    def definition_max_bytes(self) -> int:
        """The largest document that is decoded at all, in bytes."""
        return self.payload_max_bytes + self.envelope_max_bytes


DEFAULT_LIMITS = Limits()
