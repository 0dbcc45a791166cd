"""A request arrives: accept it, refuse it with reasons, or forward it to the partition it belongs to.

    wrong partition?    forward once, by signals, with its original append time
    stale forward?      rejected: the job has a younger version or a younger delete marker
    define              checked, normalised, written to `jobs`; the cursor follows
    delete              tombstone, and a marker that remembers the id for a while
    trigger, cancel     runs by hand

Whatever was due before the request was appended is claimed first, with the definition it had then.
"""

from __future__ import annotations

from typing import NamedTuple

from noontide.actors.backfill import Subject, begin, forget, stop
from noontide.actors.changes import note_change
from noontide.actors.closing import Closing
from noontide.actors.effects import Decided, Effects, Scene
from noontide.actors.firing import Due, Firing
from noontide.actors.graph import begin_wave, refuse_cycle
from noontide.actors.guards import Accepted, made_before, remember
from noontide.actors.live_runs import LiveRuns
from noontide.actors.next_cursor import Terms, cursor_after
from noontide.actors.quota import PutAside, check_quota, put_aside, release
from noontide.actors.request_input import Input
from noontide.actors.settings import SchedulerSettings
from noontide.actors.tenancy import check_etag, no_job, not_dead, not_live, refuse_as_unknown, speaks_for
from noontide.actors.ties import Follows
from noontide.core.cursor import Cursor, JobState
from noontide.core.definition import Definition, DefinitionContext, load_definition, parse_definition
from noontide.core.errors import Conflict, InvalidDefinition, Refusal
from noontide.core.ids import manual_run_id
from noontide.core.job import Job
from noontide.core.run import WAITING, RunState
from noontide.core.targets import TopicTarget
from noontide.ports.record_log import Record, TopicPartition
from noontide.records import rows
from noontide.records.dependencies import Wave
from noontide.records.job_row import JobRow, decode_job_row, encode_job_row, with_payload
from noontide.records.jobs import job_headers
from noontide.records.leases import decode_lease
from noontide.records.requests import Backfill, Cancel, Define, Delete, Redrive, Request, Trigger, decode_request
from noontide.records.state import decode_cursor, encode_verdict
from noontide.records.topics import DEFAULT_LANES

SETTLED_MAX = 100
"""Occurrences of one job that are claimed ahead of a request; older ones are left to the misfire rule."""


class _Known(NamedTuple):
    """What is in force for the id. A row always comes with a cursor; a cursor without row is a marker."""

    row: JobRow | None
    row_bytes: bytes | None
    cursor: Cursor | None


class Admission:
    """Judges the requests of one partition."""

    def __init__(
        self, partition: int, live: LiveRuns, firing: Firing, closing: Closing, settings: SchedulerSettings
    ) -> None:
        self._partition = partition
        self._live = live
        self._firing = firing
        self._closing = closing
        self._settings = settings

    def admit(self, item: Input, scene: Scene) -> None:
        """Decide one request."""
        try:
            limits = self._settings.definition
            request = decode_request(key=item.key, value=item.value, headers=item.headers, limits=limits)
            if self._forward(item, scene):
                return
            known = self._known(request.job_id, scene.effects)
            accepted = self._judge(request, known, item, scene)
        except PutAside as waiting:
            put_aside(item, waiting, scene)
            return
        except InvalidDefinition as refused:
            self.refuse(item, refused, scene)
            return
        scene.effects.counts["accepted"] += 1
        self.conclude(request, accepted, item, scene, before=known.row)

    def conclude(
        self, request: Request, accepted: Accepted, item: Input, scene: Scene, *, before: JobRow | None
    ) -> None:
        """Write down who asked for it, and the answer if somebody waits for it. before: the job as it was."""
        if not (accepted.repeated or (isinstance(request, Backfill) and request.dry_run)):
            note_change(request, before, item, scene, partition=self._partition)
        if item.wants_verdict:
            self._put_verdict(item, accepted, None, scene)

    def refuse(self, item: Input, refused: InvalidDefinition, scene: Scene) -> None:
        """Write down why a request is not accepted; the last accepted definition stays in force."""
        problems = refused.problems
        scene.effects.reject(item.origin, key=item.key, value=item.value, problems=problems, at_ms=item.appended_ms)
        if item.wants_verdict:
            self._put_verdict(item, Accepted(), refused, scene)

    def _put_verdict(self, item: Input, accepted: Accepted, refused: InvalidDefinition | None, scene: Scene) -> None:
        problems = () if refused is None else refused.problems
        verdict = encode_verdict(
            etag=accepted.etag,
            problems=[{"pointer": problem.pointer, "message": problem.message} for problem in problems],
            at_ms=item.appended_ms,
            run_id=accepted.run_id,
            repeated=accepted.repeated or None,
            backfill=accepted.backfill,
            refusal=None if refused is None or refused.refusal is Refusal.INVALID else refused.refusal,
        )
        cursor = None if item.key is None else scene.effects.find(rows.cursor_key(self._partition, item.key))
        forget_ms = item.appended_ms + self._settings.verdict_retention_ms
        scene.effects.put_verdict(Decided(item.origin, verdict, cursor), forget_ms=forget_ms)

    def _judge(self, request: Request, known: _Known, item: Input, scene: Scene) -> Accepted:
        """What the request does; nothing when it was made before."""
        self._check_sender(request, known, item, scene)
        before = made_before(request, item, scene.effects, partition=self._partition)
        if before is not None:
            return before
        accepted = self._apply(request, known, item, scene)
        remember(
            request,
            accepted,
            item,
            scene.effects,
            partition=self._partition,
            retention_ms=self._settings.marker_retention_ms,
        )
        return accepted

    @staticmethod
    def _check_sender(request: Request, known: _Known, item: Input, scene: Scene) -> None:
        # What was put aside comes back in its order, so one of the same millisecond is not younger.
        youngest_ms = item.appended_ms + (item.reserved is not None)
        if item.forwarded and known.cursor is not None and known.cursor.accepted_ms >= youngest_ms:
            raise InvalidDefinition.of("", "stale: written to a wrong partition before what is in force now")
        if known.row is not None and not speaks_for(known.row.tenant, request, item, scene):
            _ask_for_fresh_config(scene)
            refuse_as_unknown(request)

    def _forward(self, item: Input, scene: Scene) -> bool:
        layout, names = scene.world.layout, scene.effects.names
        assert item.key is not None
        home = layout.partition_of(item.key)
        if home == self._partition:
            return False
        if item.forwarded:
            raise InvalidDefinition.of("", f"forwarded to partition {self._partition}, belongs to {home}")
        mailbox = layout.signals_partition(layout.slot_of(home), names.slot)
        headers = [
            ("kind", b"forward"),
            ("origin", item.origin.text.encode()),
            ("appended", b"%d" % item.appended_ms),
            *((f"request-{name}", value) for name, value in item.headers),
        ]
        scene.effects.outputs[TopicPartition(names.signals, mailbox)].append(Record(item.key, item.value, headers))
        scene.effects.counts["misrouted"] += 1
        return True

    def _apply(self, request: Request, known: _Known, item: Input, scene: Scene) -> Accepted:
        if request.terms.must_be_new and known.row is not None:
            raise Conflict.of("/id", "there is a job of this id already")
        check_etag(request.if_match, known.row)
        match request:
            case Define():
                return Accepted(self._define(request, known, item, scene))
            case Delete():
                self._delete(request.job_id, known, item, scene)
            case Trigger():
                return self._trigger(request, known, item, scene)
            case Cancel():
                self._cancel(request, known.row, item, scene)
            case Redrive():
                self._redrive(request, item, scene)
            case Backfill():
                if known.row is None or known.cursor is None:
                    raise no_job(request.job_id)
                return begin(request, Subject(known.row, known.cursor), item, scene)
        return Accepted()

    def _known(self, job_id: str, effects: Effects) -> _Known:
        key = job_id.encode()
        row = effects.read(rows.job_key(self._partition, key))
        cursor = effects.read(rows.cursor_key(self._partition, key))
        return _Known(
            None if row is None else decode_job_row(row), row, None if cursor is None else decode_cursor(cursor)
        )

    # --- define

    def _define(self, request: Define, known: _Known, item: Input, scene: Scene) -> str:
        previous = None if known.row is None else load_definition(known.row.document)
        definition = self._parsed(request, previous, item, scene)
        job = definition.job
        if previous is not None and previous.tenant != job.tenant:
            raise InvalidDefinition.of("/id", "this id is not available")
        self.check_names(job, item, scene)
        refuse_cycle(request.job_id, job.after, scene)
        check_quota(job, previous, item, scene)
        cursor = self._settled(known, request.job_id, item, scene)
        created_ms = item.appended_ms if known.row is None else known.row.created_ms
        etag, key, trace = item.origin.etag, request.job_id.encode(), request.terms.traceparent
        headers = job_headers(
            etag=etag, origin=item.origin.text, tenant=job.tenant, created_ms=created_ms, updated_ms=item.appended_ms,
            trace=trace,
        )  # fmt: skip
        self._keep_definitions(request.job_id, known, scene)
        row = encode_job_row(job, definition.document, etag=etag, created_ms=created_ms, trace=trace)
        scene.effects.put_job(self._partition, key, row=row, record=Record(key, definition.document, headers))
        terms = Terms(scene.world.config, self._settings.completed_retention_ms)
        moved = cursor_after(job, previous, cursor, at_ms=item.appended_ms, terms=terms)
        if cursor is not None and moved.due_ms != cursor.due_ms:
            self._leave(known, cursor, item, scene, reason="another definition came before it could run")
        scene.effects.put_cursor(self._partition, key, moved)
        if moved.state is JobState.COMPLETED:
            release(request.job_id, decode_job_row(row), scene)
        if job.after or (previous is not None and previous.after):
            scene.effects.ties.follows[request.job_id] = Follows(job.tenant, job.after, etag)
        if previous is None and request.job_id in scene.world.ties.dependants:
            scene.effects.ties.appeared.append(request.job_id)
        return etag

    def _parsed(self, request: Define, previous: Job | None, item: Input, scene: Scene) -> Definition:
        context = DefinitionContext(
            key=request.job_id,
            tenant=request.terms.tenant,
            created_ms=item.appended_ms,
            limits=self._settings.definition,
            previous=previous,
            topic_prefix=scene.world.layout.prefix,
        )
        definition = parse_definition(request.document, context=context)
        scene.effects.counts["warnings"] += len(definition.warnings)
        return definition

    @staticmethod
    def check_names(job: Job, item: Input, scene: Scene) -> None:
        """What a definition refers to must exist and be open to its tenant."""
        config = scene.world.config
        domain = item.origin.topic.removeprefix("requests.")
        if not config.may_speak_for(domain, job.tenant):
            _ask_for_fresh_config(scene)
            raise InvalidDefinition.of("/tenant", f"the domain {domain!r} may not speak for {job.tenant!r}")
        missing = [name for name in (*job.calendar.include, *job.calendar.exclude) if name not in config.calendars]
        if missing:
            _ask_for_fresh_config(scene)
            raise InvalidDefinition.of("/calendar", f"no calendar is called {missing[0]!r}")
        if job.lane not in (*DEFAULT_LANES, *config.lanes):
            _ask_for_fresh_config(scene)
            raise InvalidDefinition.of("/lane", f"no lane is called {job.lane!r}")
        if isinstance(job.target, TopicTarget):
            registered = config.topics.get(job.target.name)
            if registered is not None and not registered.allows(job.tenant):
                _ask_for_fresh_config(scene)
                raise InvalidDefinition.of("/target/topic/name", f"{job.target.name!r} is not open to {job.tenant!r}")

    def _settled(self, known: _Known, job_id: str, item: Input, scene: Scene) -> Cursor | None:
        """The cursor once everything due before the request is claimed; its due row is void."""
        cursor, effects, key = known.cursor, scene.effects, job_id.encode()
        effects.unschedule(self._partition, key, cursor)
        for _ in range(SETTLED_MAX):
            if cursor is None or known.row_bytes is None or cursor.state is not JobState.ACTIVE:
                break
            if cursor.due_ms is None or cursor.start_ms is None or cursor.due_ms > item.appended_ms:
                break
            due = self._due(job_id, cursor)
            before, cursor = cursor, self._firing.fire(due, known.row_bytes, scene, until_ms=item.appended_ms)
            effects.unschedule(self._partition, key, cursor)
            if cursor.due_ms == before.due_ms:
                break
        return cursor

    def _due(self, job_id: str, cursor: Cursor) -> Due:
        assert cursor.due_ms is not None
        assert cursor.start_ms is not None
        return Due(
            partition=self._partition,
            job_id=job_id,
            due_ms=cursor.due_ms,
            start_ms=cursor.start_ms,
            runs=cursor.runs,
            generation=cursor.generation,
            accepted_ms=cursor.accepted_ms,
        )

    def _leave(self, known: _Known, cursor: Cursor | None, item: Input, scene: Scene, *, reason: str) -> None:
        """Write down what was due before the request and could not be claimed, since nobody will come back to it."""
        if cursor is None or known.row_bytes is None or cursor.state is not JobState.ACTIVE or item.key is None:
            return
        if cursor.due_ms is not None and cursor.start_ms is not None and cursor.due_ms <= item.appended_ms:
            due = self._due(item.key.decode(), cursor)
            self._firing.pass_over(due, known.row_bytes, scene, until_ms=item.appended_ms, reason=reason)

    def _keep_definitions(self, job_id: str, known: _Known, scene: Scene) -> None:
        """Live runs go on with what they were claimed with."""
        if known.row is None or known.row_bytes is None:
            return
        for run in self._live.of_job(job_id, scene.effects):
            if not run.kept:
                scene.effects.keep_definition(self._partition, run, known.row, known.row_bytes)

    # --- delete, trigger, cancel

    def _delete(self, job_id: str, known: _Known, item: Input, scene: Scene) -> None:
        if known.row is None or known.cursor is None:
            raise no_job(job_id)
        cursor = self._settled(known, job_id, item, scene)
        assert cursor is not None
        self._leave(known, cursor, item, scene, reason="the job was deleted before it could run")
        for run in list(self._live.of_job(job_id, scene.effects)):
            if run.state in WAITING:
                self._closing.cancel(run, scene, reason="the job was deleted")
        self._keep_definitions(job_id, known, scene)
        forget(job_id, scene)
        release(job_id, known.row, scene)
        key = job_id.encode()
        scene.effects.delete_job(self._partition, key, headers=[("origin", item.origin.text.encode())])
        until_ms = item.appended_ms + self._settings.marker_retention_ms
        marker = Cursor(JobState.DELETED, None, until_ms, generation=cursor.generation, accepted_ms=item.appended_ms)
        scene.effects.put_cursor(self._partition, key, marker)

    def _trigger(self, request: Trigger, known: _Known, item: Input, scene: Scene) -> Accepted:
        if known.row is None or known.row_bytes is None or known.cursor is None:
            raise no_job(request.job_id)
        row_bytes = known.row_bytes
        if request.payload is not None:
            row_bytes = with_payload(row_bytes, request.job_id, request.payload)
        name = manual_run_id(request.job_id, item.origin.offset, item.source_name)
        due_ms = item.appended_ms if request.due_ms is None else request.due_ms
        if request.members:
            begin_wave(name, item, Wave("", due_ms, request.members), scene)
        due = Due(
            partition=self._partition,
            job_id=request.job_id,
            due_ms=due_ms,
            start_ms=item.appended_ms,
            runs=0,
            generation=known.cursor.generation,
            accepted_ms=known.cursor.accepted_ms,
        )
        row = decode_job_row(row_bytes)
        self._firing.claim(due, name, row.traced(request.terms.traceparent), scene)
        if request.payload is not None:
            for run in self._live.of_job(request.job_id, scene.effects):
                if run.run_id == name:
                    scene.effects.keep_definition(self._partition, run, row, row_bytes)
        return Accepted(known.row.etag, name)

    def _cancel(self, request: Cancel, row: JobRow | None, item: Input, scene: Scene) -> None:
        named = request.run_id
        found = [
            run
            for run in self._live.of_job(request.job_id, scene.effects)
            if named in (None, run.run_id) and speaks_for(run.tenant, request, item, scene)
        ]
        for run in found:
            self._closing.cancel(run, scene, reason=request.reason or "cancelled by request")
        if found and row is not None:
            self._closing.schedule_after_completion(found[-1], scene, row)
        stopped = named is None and row is not None and stop(request.job_id, scene)
        if not found and not stopped:
            raise not_live(request)

    def _redrive(self, request: Redrive, item: Input, scene: Scene) -> None:
        """A dead run starts anew, with its id and a greater token; one that waits for a retry does not wait longer."""
        if request.run_id is None:
            raise InvalidDefinition.of("/run_id", "name the run; `noontide runs redrive` finds them by job or time")
        for run in self._live.of_job(request.job_id, scene.effects):
            speaks = speaks_for(run.tenant, request, item, scene)
            if speaks and run.run_id == request.run_id and run.state is RunState.RETRY_WAIT:
                scene.effects.open_run(self._partition, run._replace(not_before_ms=0, reason="retried by request"))
                return
        run_id = request.run_id.encode()
        dead = scene.effects.find(rows.dead_key(self._partition, run_id))
        died = None if dead is None else decode_lease(run_id, dead)
        if died is None or not speaks_for(died.tenant, request, item, scene):
            raise not_dead(request)
        again = died._replace(
            state=RunState.PENDING,
            attempt=0,
            not_before_ms=0,
            reason="redriven",
            queued_ms=0,
            worker=None,
            granted_ms=0,
            cancel=None,
            permits=(),
        )
        scene.effects.revive(self._partition, again)


def _ask_for_fresh_config(scene: Scene) -> None:
    """A refusal by the configuration counts only once it has been read to its end; until then decide again."""
    scene.effects.wants_fresh_config |= not scene.world.config_is_fresh
