"""What the owner of a job does about its tenant's quota of exact starts; `actors.exact_starts` keeps the counts."""

from __future__ import annotations

from contextlib import suppress

from noontide.actors.effects import Scene
from noontide.actors.request_input import Input
from noontide.actors.timelines import loaded
from noontide.core.errors import InvalidDefinition
from noontide.core.exact_quota import Insisting, insisting
from noontide.core.job import Job
from noontide.records import exact_starts as records
from noontide.records.job_row import JobRow
from noontide.records.signals import Insist, Reserve


class PutAside(Exception):
    """A definition waits for the answer of its tenant's quota."""

    def __init__(self, tenant: str, counts: Insisting) -> None:
        super().__init__(tenant)
        self.tenant = tenant
        self.counts = counts


def check_quota(job: Job, previous: Job | None, item: Input, scene: Scene) -> None:
    """Whether a definition's exact starts have room. Raises PutAside until that is known, InvalidDefinition if not."""
    if job.tenant not in scene.world.config.limits.exact_starts:
        return
    counts, before = insisting(job), None if previous is None else insisting(previous)
    if counts is None:
        if before is not None:
            say(job.tenant, job.id, None, scene)
    elif counts != before or item.reserved is not None:
        if item.reserved is None:
            raise PutAside(job.tenant, counts)
        if item.reserved:
            raise InvalidDefinition.of("/timing", item.reserved)


def put_aside(item: Input, waiting: PutAside, scene: Scene) -> None:
    """Keep a definition until the quota has answered."""
    assert item.key is not None
    job_id, effects, origin = item.key.decode(), scene.effects, item.origin.text
    value = records.encode_held(item.value or b"", item.headers, appended_ms=item.appended_ms)
    effects.put_note(records.held_key(job_id, origin), value)
    effects.held[job_id, origin] = item._replace(source=item.origin, forwarded=True)
    counts = waiting.counts
    ask = Reserve(waiting.tenant, job_id, counts.schedule_key, origin, counts.until_ms)
    effects.signal(_home_of(waiting.tenant, scene), ask)


def release(job_id: str, row: JobRow, scene: Scene) -> None:
    """A job is completed or deleted: it does not count any more."""
    if row.spread_ms == 0 and row.tenant in scene.world.config.limits.exact_starts:
        with suppress(Exception):  # a definition of an earlier version that cannot be read does not count
            if insisting(loaded(row.document)) is not None:
                say(row.tenant, job_id, None, scene)


def say(tenant: str, job_id: str, counts: Insisting | None, scene: Scene) -> None:
    """Tell the quota's home how a job counts."""
    schedule, until_ms = ("", 0) if counts is None else counts
    scene.effects.signal(_home_of(tenant, scene), Insist(tenant, job_id, schedule, until_ms))


def _home_of(tenant: str, scene: Scene) -> int:
    layout = scene.world.layout
    return layout.slot_of(layout.partition_of(records.quota_name(tenant)))
