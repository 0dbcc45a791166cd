"""Which fields a definition has and how each is read, as data."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from noontide.core.fields import (
    Reader,
    boolean,
    duration,
    integer,
    name,
    one_of,
    prose,
    seconds,
    text,
)
from noontide.core.limits import Limits
from noontide.core.policies import Guarantee, MisfireRule, Overlap, UpstreamFailure
from noontide.core.policy_fields import read_calendar, read_labels, read_notify
from noontide.core.shapes import Shaped


class Fields(NamedTuple):
    """How each field that stands alone is read: its attribute of Job and its reader."""

    plain: dict[str, tuple[str, Reader[object]]]
    in_seconds: dict[str, tuple[str, str, Reader[int]]]
    shaped: dict[str, tuple[str, Shaped]]


LINKED = frozenset((
    "id", "tenant", "timezone", "dst", "schedule", "run_at", "starts_at", "ends_at", "target", "payload",
    "retry", "timing", "after",
))  # fmt: skip
"""Fields that depend on others or on the context and are read after the rest."""


@lru_cache(maxsize=16)
def fields_within(limits: Limits) -> Fields:
    spans = {
        "timeout": ("timeout_ms", limits.timeout_max_ms),
        "lease": ("lease_ms", limits.timeout_max_ms),
        "queue_deadline": ("queue_deadline_ms", limits.timeout_max_ms),
        "complete_by": ("complete_by_ms", limits.timeout_max_ms),
        "grace": ("grace_ms", limits.timeout_max_ms),
    }
    plain: dict[str, tuple[str, Reader[object]]] = {
        "max_runs": ("max_runs", integer(1, 1_000_000_000)),
        "lane": ("lane", name(limits.name_max_chars)),
        "priority": ("priority", integer(0, 9)),
        "guarantee": ("guarantee", one_of(Guarantee)),
        "misfire": ("rule", one_of(MisfireRule)),
        "run_all_max": ("run_all_max", integer(1, limits.run_all_max)),
        "overlap": ("overlap", one_of(Overlap)),
        "on_upstream_failure": ("on_upstream_failure", one_of(UpstreamFailure)),
        "concurrency_key": ("concurrency_key", text(limits.text_max_chars)),
        "pause_after_failures": ("pause_after_failures", integer(1, 1_000)),
        "paused": ("paused", boolean),
        "note": ("note", prose(limits.note_max_chars)),
        "managed_by": ("managed_by", text(limits.text_max_chars)),
        "idempotency_key": ("idempotency_key", text(limits.text_max_chars)),
    }
    plain.update({field: (attribute, duration(longest)) for field, (attribute, longest) in spans.items()})
    return Fields(
        plain=plain,
        in_seconds={f"{field}_sec": (field, attribute, seconds(most)) for field, (attribute, most) in spans.items()},
        shaped={
            "calendar": ("calendar", read_calendar),
            "labels": ("labels", read_labels),
            "notify": ("notify", read_notify),
        },
    )


@lru_cache(maxsize=16)
def known_names(limits: Limits) -> frozenset[str]:
    fields = fields_within(limits)
    return frozenset({*fields.plain, *fields.in_seconds, *fields.shaped, *LINKED})
