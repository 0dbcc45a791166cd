"""Many due jobs that fire alike, claimed together: the short way for plain jobs of healthy topics, and of workers.

`firing` decides any occurrence, one at a time. At midnight 100,000 jobs differ in id, key and payload only; what is the
same for all of them (the next occurrence, the line of history or the lease, most headers) is worked out once here. Both
ways write the same bytes, and whatever is not plain is left to `firing`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from noontide.actors.breaker import UNBOUNDED
from noontide.actors.effects import Scene
from noontide.actors.live_runs import LiveRuns
from noontide.actors.offers import OfferForm, Offers
from noontide.actors.settings import SchedulerSettings
from noontide.actors.timers import DueItem
from noontide.core.cursor import Cursor, JobState
from noontide.core.ids import run_id
from noontide.core.run import Run, RunState
from noontide.core.schedule import AfterCompletion, OneOff, schedule_from_key
from noontide.ports.record_log import Record, TopicPartition, quick_record
from noontide.records import rows, state
from noontide.records.delivery import RECORD_OVERHEAD_BYTES, headers_of
from noontide.records.executions import Times, delivered_of
from noontide.records.job_row import Likeness, TargetKind, likeness_of, mark_of, own_of
from noontide.records.rows import decode_due_counts, encode_due_counts

KEY_BYTES, DUE_BYTES = rows.DUE_KEY_FORM_BYTES, rows.DUE_FORM_BYTES
ANY_BYTES = 1 << 62


class _Delivery(NamedTuple):
    """How runs alike are written to their topic."""

    topic: str
    partitions: int
    headers: Callable[[bytes, bytes], list[tuple[str, bytes]]]
    history: Callable[[bytes, bytes], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What jobs alike share. suffix: of their run ids; cursor, due: the forms of what they write.

    room_bytes: rows longer than this are left to `firing`, which looks whether the record itself fits the topic.
    members: (job id, value of the due row, job row).
    """

    way: _Delivery | OfferForm
    room_bytes: int
    suffix: bytes
    cursor: bytes
    due: tuple[bytes, bytes]
    members: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class _Claims:
    """What is added to the effects when all of it is there."""

    records: defaultdict[TopicPartition, list[Record]] = field(default_factory=lambda: defaultdict(list))
    history: list[Record] = field(default_factory=list)
    cursors: list[Record] = field(default_factory=list)
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    due_changes: list[tuple[bytes, bytes | None]] = field(default_factory=list)


class Volley:
    """Claims the plain ones among the due jobs of one partition."""

    def __init__(self, partition: int, live: LiveRuns, settings: SchedulerSettings) -> None:
        self._partition = partition
        self._live = live
        self._settings = settings

    def claim(self, due: Sequence[DueItem], job_keys: Sequence[bytes], scene: Scene) -> list[DueItem]:
        """Claim what is plain; returns the rest, in order. Leaves the effects alone when it raises.

        job_keys: the rows of the due jobs, in the same order.
        """
        effects, plans, rest = scene.effects, dict[bytes, _Plan | None](), list[DueItem]()
        is_changed, row_of = effects.has_changed_rows, effects.fetched
        has_ties = self._live.is_busy(effects) or bool(scene.world.ties.dependants)
        for item, job_key in zip(due, job_keys, strict=False):
            key, value = item
            row = row_of(job_key)
            if row is None or (is_changed and (effects.is_changed(key) or effects.is_changed(job_key))):
                rest.append(item)
                continue
            mark = key[:KEY_BYTES] + value[:DUE_BYTES] + mark_of(row)
            if mark not in plans:
                plans[mark] = self._plan(key, value, likeness_of(row), scene)
            plan, job_id = plans[mark], key[KEY_BYTES:]
            if plan is None or len(row) > plan.room_bytes or (has_ties and self._is_tied(job_id.decode(), scene)):
                rest.append(item)
            else:
                plan.members.append((job_id, value, row))
        self._carry_out([plan for plan in plans.values() if plan is not None and plan.members], scene)
        return rest

    def _is_tied(self, job_id: str, scene: Scene) -> bool:
        """Whether a job has live runs, or others wait for it."""
        return bool(self._live.of_job(job_id, scene.effects)) or job_id in scene.world.ties.dependants

    def _plan(self, key: bytes, value: bytes, like: Likeness, scene: Scene) -> _Plan | None:
        """How jobs alike fire together; None when each is a matter of its own."""
        start_ms, _ = rows.due_key_parts(key)
        due, now_ms = rows.decode_due_row(value), scene.world.now_ms
        in_time = start_ms == due.due_ms + like.spread_ms and 0 <= now_ms - start_ms <= like.grace_ms
        is_plain = not (like.calendars or like.max_runs or like.extras)
        if due.purpose != rows.Purpose.FIRE or not in_time or not is_plain:
            return None
        schedule = schedule_from_key(like.schedule_key) if like.schedule_key else None
        if schedule is None or isinstance(schedule, AfterCompletion):
            return None
        next_ms = None if isinstance(schedule, OneOff) else schedule.next_after(due.due_ms)
        if next_ms is None or next_ms > like.ends_at_ms:
            removal_ms = now_ms + self._settings.completed_retention_ms
            cursor = Cursor(JobState.COMPLETED, None, removal_ms, 0, due.generation, due.due_ms)
        else:
            cursor = Cursor(JobState.ACTIVE, next_ms, next_ms + like.spread_ms, 0, due.generation, due.due_ms)
        form = rows.due_row_form(self._partition, cursor)
        times = Times(due.due_ms, start_ms, now_ms, now_ms)
        way, room_bytes = self._way(like, times, scene)
        if way is None or form is None:
            return None
        suffix = run_id("", due.due_ms, due.generation).encode()
        return _Plan(way=way, room_bytes=room_bytes, suffix=suffix, cursor=state.cursor_form(cursor), due=form)

    def _way(self, like: Likeness, times: Times, scene: Scene) -> tuple[_Delivery | OfferForm | None, int]:
        """How runs alike go on their way, and how long the rows of their jobs may be; None when each is by itself."""
        if like.target_kind != TargetKind.TOPIC:
            model = _claimed(like, times)
            return OfferForm.of(model, like, self._partition, scene), ANY_BYTES
        route = scene.world.routes.get(like.target)
        if route is None or route.problem is not None or route.allowance < UNBOUNDED:
            return None, 0
        delivery = _Delivery(
            topic=like.target,
            partitions=route.partitions,
            headers=headers_of(due_ms=times.due_ms, attempt=1),
            history=delivered_of(tenant=like.tenant, target=like.target_text, times=times),
        )
        return delivery, route.max_message_bytes - RECORD_OVERHEAD_BYTES

    def _carry_out(self, plans: list[_Plan], scene: Scene) -> None:
        if not plans:
            return
        claims, offers, effects = _Claims(), Offers(self._partition, scene), scene.effects
        for plan in plans:
            if isinstance(plan.way, OfferForm):
                for job_id, _, row in plan.members:
                    offers.add(plan.way, job_id + plan.suffix, job_id, row)
            else:
                _deliver(plan.way, plan, claims)
            self._move(plan, claims)
        for partition, records in claims.records.items():
            effects.outputs[partition].extend(records)
        if claims.history:
            effects.outputs[effects.names.executions].extend(claims.history)
        effects.outputs[effects.names.state].extend(claims.cursors)
        effects.index.puts.update(claims.rows)
        effects.due_changes[self._partition].extend(claims.due_changes)
        offers.carry_out()
        for plan in plans:
            if isinstance(plan.way, _Delivery):
                effects.used[plan.way.topic] += len(plan.members)
                effects.counts["succeeded"] += len(plan.members)

    def _move(self, plan: _Plan, claims: _Claims) -> None:
        """The cursor that follows, for each of the jobs."""
        cursors, due_changes = claims.cursors.append, claims.due_changes.append
        (next_key, next_value), form, changed = plan.due, plan.cursor, claims.rows
        cursor_row = rows.cursor_key(self._partition, b"")
        for job_id, value, _ in plan.members:
            runs, accepted_ms = decode_due_counts(value)
            changed[cursor_row + job_id] = cursor = form % (runs + 1, accepted_ms)
            cursors(quick_record(Record, (state.CURSOR + job_id, cursor, ())))
            due = next_key + job_id, next_value + encode_due_counts(runs + 1, accepted_ms)
            changed[due[0]] = due[1]
            due_changes(due)


def _deliver(way: _Delivery, plan: _Plan, claims: _Claims) -> None:
    """One record and one line of history for each of the jobs."""
    into: dict[int, Callable[[Record], None]] = {}
    history, suffix, (topic, partitions, headers_of_run, line_of_run) = claims.history.append, plan.suffix, way
    for job_id, _, row in plan.members:
        key_hash, key, payload = own_of(row)
        run = job_id + suffix
        number = key_hash % partitions
        if number not in into:
            into[number] = claims.records[TopicPartition(topic, number)].append
        into[number](quick_record(Record, (key, payload, headers_of_run(run, job_id))))
        history(quick_record(Record, (run, line_of_run(run, job_id), ())))


def _claimed(like: Likeness, times: Times) -> Run:
    """A run of a job that workers take, as it is claimed."""
    return Run(
        run_id="",
        job_id="",
        tenant=like.tenant,
        state=RunState.PENDING,
        due_ms=times.due_ms,
        start_ms=times.start_ms,
        claimed_ms=times.claimed_ms,
        target=like.target_text,
        lane=like.lane,
        priority=like.priority,
    )
