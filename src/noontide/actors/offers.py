"""Runs that are alike, offered to workers together: the short way of `hand_out`.

What is the same for all of them (the lease but for three fields, most of the invitation) is put into words once. Both
ways write the same bytes, and whatever is not plain is left to `hand_out`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from noontide.actors.effects import Hold, Opened, Scene
from noontide.actors.world import World
from noontide.core.run import Run, RunEvent, RunState, advance
from noontide.ports.record_log import Record, quick_record
from noontide.records import rows
from noontide.records.delivery import traceparent
from noontide.records.job_row import Likeness, TargetKind, likeness_of, mark_of, offered_of
from noontide.records.leases import RunForm, run_likeness
from noontide.records.runs import invitation_of


class OfferForm:
    """How runs alike are offered. model: one of them, ready; hold: of each; now_ms: when they are."""

    __slots__ = ("_model", "_ready", "hold", "invitation", "lane", "queued")

    def __init__(self, model: Run, hold: Hold, slot: int, now_ms: int) -> None:
        self.lane, self.hold = model.lane, hold
        self._model = model
        self._ready: RunForm | None = None
        state = advance(model.state, RunEvent.HAND_OUT)
        self.queued = RunForm(model._replace(state=state, queued_ms=now_ms, reason=None))
        self.invitation = invitation_of(
            slot=slot, times=(model.due_ms, model.start_ms), attempt=model.attempt + 1
        )  # fmt: skip

    @property
    def ready(self) -> RunForm:
        """Of those for which there is no room."""
        if self._ready is None:
            self._ready = RunForm(self._model._replace(reason=f"ready in lane {self.lane}"))
        return self._ready

    @classmethod
    def of(cls, model: Run, like: Likeness, partition: int, scene: Scene) -> OfferForm | None:
        """The form of runs of jobs alike; None when each is a matter of its own."""
        if not may_be_plain(like, scene.world) or not model.lane:
            return None
        follows = like.schedule_key.startswith("after:")
        hold = Hold(partition, like.queue_ms, like.lease_ms, like.timeout_ms, like.once, follows)
        return cls(model, hold, scene.effects.names.slot, scene.world.now_ms)


def may_be_plain(like: Likeness, world: World) -> bool:
    """Whether runs of jobs alike need nothing but room in their lane: no permit, no turn at a slowed target."""
    return like.target_kind != TargetKind.TOPIC and not (like.extras or world.config.limits.ceilings or world.paces)


class Offers:
    """Runs of one partition that are offered in one cycle; added to the effects when all of it is there."""

    def __init__(self, partition: int, scene: Scene) -> None:
        self._partition = partition
        self._effects = scene.effects
        self._rooms = scene.world.rooms
        self._promised = scene.world.promised
        self._opened: list[Opened] = []
        self._invitations: defaultdict[str, list[Record]] = defaultdict(list)
        self._holds: dict[str, Hold] = {}
        self._published: defaultdict[str, int] = defaultdict(int)

    def has_room(self, lane: str, run_id: str) -> bool:
        """Whether a run may be offered now."""
        taken = self._effects.published[lane] + self._published[lane]
        return run_id in self._promised or taken < self._rooms.get(lane, 0)

    def add(self, form: OfferForm, run_id: bytes, job_id: bytes, row: bytes) -> None:
        """Offer a run, or let it wait in its queue. row: of the job as it was claimed with."""
        etag, standing, payload = offered_of(row)
        name, job, version = run_id.decode(), job_id.decode(), etag.decode()
        if not self.has_room(form.lane, name):
            run = form.ready.run(name, job, version)
            self._opened.append((self._partition, run_id, form.ready.lease(job_id, etag), run))
            return
        self._published[form.lane] += name not in self._promised
        run = form.queued.run(name, job, version)
        self._opened.append((self._partition, run_id, form.queued.lease(job_id, etag), run))
        self._holds[name] = form.hold
        invitation = form.invitation(run_id, standing, payload)
        headers = [("traceparent", traceparent(run_id))]
        self._invitations[form.lane].append(quick_record(Record, (job_id, invitation, headers)))

    def carry_out(self) -> None:
        """Add all of it to the effects."""
        effects = self._effects
        effects.open_runs(self._opened)
        effects.holds.update(self._holds)
        for lane, records in self._invitations.items():
            topic = effects.names.runs(lane)
            effects.outputs[topic].extend(records)
            effects.used[topic.topic] += len(records)
        for lane, count in self._published.items():
            effects.published[lane] += count


def offer_ready(partition: int, released: Sequence[Run], scene: Scene) -> list[Run]:
    """Offer the plain ones of the runs whose turn it is; returns the rest, in order.

    Leaves the effects alone when it raises.
    """
    effects, rest = scene.effects, list[Run]()
    offers, forms = Offers(partition, scene), dict[object, OfferForm | None]()
    job_row, row_of, changed = rows.job_key(partition, b""), effects.fetched, effects.live_changes
    for run in released:
        job_id = run.job_id.encode()
        row = None if run.kept or run.job_id in changed or not run.etag else row_of(job_row + job_id)
        if row is None or not offers.has_room(run.lane, run.run_id):
            rest.append(run)
            continue
        mark = run_likeness(run), mark_of(row)
        if mark not in forms:
            forms[mark] = _form(run, likeness_of(row), partition, scene)
        form = forms[mark]
        if form is None:
            rest.append(run)
        else:
            offers.add(form, run.run_id.encode(), job_id, row)
    offers.carry_out()
    return rest


def _form(run: Run, like: Likeness, partition: int, scene: Scene) -> OfferForm | None:
    waits = run.not_before_ms > scene.world.now_ms or run.waits_for is not None
    if run.state is not RunState.PENDING or waits or run.permits or run.awaits is not None or run.trace:
        return None
    return OfferForm.of(run._replace(not_before_ms=0), like, partition, scene)
