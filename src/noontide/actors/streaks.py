"""Jobs that are paused when their runs die again and again (`pause_after_failures`), with a note that says why.

How many runs in a row have died is a fact of the slot; a run that succeeds ends the streak. Pausing is a definition
like any other: whoever reads `jobs` sees it, and putting the job again (or `noontide jobs resume`) lets it go on.
"""

from __future__ import annotations

import struct

import orjson

from noontide.actors.effects import Scene
from noontide.actors.live_runs import LiveRuns
from noontide.actors.timelines import loaded
from noontide.core.cursor import JobState
from noontide.core.definition import load_definition
from noontide.core.payload import member_texts
from noontide.core.run import Run, RunState
from noontide.ports.record_log import Record
from noontide.records import rows, state
from noontide.records.audit import Action, Change, encode_change, shown_definition
from noontide.records.job_row import COUNTED, JobRow, decode_job_row, encode_job_row, has_extra
from noontide.records.jobs import job_headers
from noontide.records.state import decode_cursor


def count_end(partition: int, run: Run, end: RunState, live: LiveRuns, scene: Scene) -> None:
    """A run is closed: it goes on with a streak of failures, or ends it. Called when the effects have closed it."""
    effects, job_id = scene.effects, run.job_id
    before = effects.ties.streaks.get(job_id, scene.world.ties.streaks.get(job_id, 0))
    if end is RunState.SUCCEEDED and before:
        _put(job_id, 0, scene)
    if end is not RunState.DEAD:
        return
    row_bytes = effects.find(rows.job_key(partition, job_id.encode()))
    if row_bytes is None or not has_extra(row_bytes, COUNTED):
        return
    try:
        row = decode_job_row(row_bytes)
    except (ValueError, struct.error):  # its run is closed all the same; the job is set aside when it is due
        return
    failures = before + 1
    most = loaded(row.document).pause_after_failures
    if most is not None and failures >= most:
        failures = 0
        for other in live.of_job(job_id, effects):
            if not other.kept:
                effects.keep_definition(partition, other, row, row_bytes)
        _pause(partition, run, row, scene, note=f"paused after {most} dead runs in a row: {run.run_id}")
    _put(job_id, failures, scene)


def _put(job_id: str, failures: int, scene: Scene) -> None:
    scene.effects.ties.streaks[job_id] = failures
    scene.effects.put_note(state.STREAK + job_id.encode(), state.encode_counts(failures=failures))


def _pause(partition: int, run: Run, row: JobRow, scene: Scene, *, note: str) -> None:
    effects, key = scene.effects, run.job_id.encode()
    value = effects.find(rows.cursor_key(partition, key))
    cursor = None if value is None else decode_cursor(value)
    if cursor is None or cursor.state is not JobState.ACTIVE:
        return
    members = {name: orjson.Fragment(bytes(text)) for name, text in member_texts(row.document).items()}
    document = orjson.dumps({**members, "paused": True, "note": note})
    etag, now_ms = f"pause-{partition}-{scene.world.now_ms}", scene.world.now_ms
    headers = job_headers(
        etag=etag, origin="", tenant=row.tenant, created_ms=row.created_ms, updated_ms=now_ms
    )  # fmt: skip
    compiled = encode_job_row(load_definition(document), document, etag=etag, created_ms=row.created_ms)
    effects.put_job(partition, key, row=compiled, record=Record(key, document, headers))
    effects.unschedule(partition, key, cursor)
    effects.put_cursor(partition, key, cursor._replace(state=JobState.PAUSED, due_ms=None, start_ms=None, reason=note))
    change = Change(
        action=Action.UPDATED, subject=f"job/{run.job_id}", at_ms=now_ms, tenant=row.tenant, actor="scheduler",
        before=shown_definition(row.document), after=shown_definition(document), note=note,
    )  # fmt: skip
    effects.outputs[effects.names.audit].append(Record(key, encode_change(change)))
    effects.counts["paused_by_failures"] += 1
