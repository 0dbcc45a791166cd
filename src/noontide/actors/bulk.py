"""Claims and ends of runs that are alike, decided together: the short way of the lease keeper.

Workers say the same of many runs in one frame. What is the same in what follows (the leases but for three fields, the
lines of history) is put into words once. Both ways write the same bytes; what is not plain is left to the keeper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from noontide.actors.closing import Homes
from noontide.actors.effects import Closed, Effects, Opened, Scene
from noontide.actors.heard import Heard
from noontide.actors.lane import Held
from noontide.core.run import Run, RunEvent, RunState, advance
from noontide.records import executions, results
from noontide.records.leases import RunForm, run_likeness
from noontide.records.worker_events import End, Outcome

Claimed = tuple[str, int]
QUEUED, RUNNING, SUCCEEDED = RunState.QUEUED, RunState.RUNNING, Outcome.SUCCEEDED


class Roll(NamedTuple):
    """What is held, and where it is at home, by partition."""

    held: Mapping[str, Held]
    homes: Mapping[int, Homes]

    def untouched(self, run_id: str, effects: Effects) -> tuple[Held, Run] | None:
        """A run that is held and that this cycle has not changed."""
        held = self.held.get(run_id)
        run = None if held is None else self.homes[held.hold.partition].live.by_id.get(run_id)
        if held is None or run is None:
            return None
        changes = effects.live_changes.get(run.job_id)
        return None if changes is not None and run_id in changes else (held, run)


def grant_alike(heard: Heard, roll: Roll, scene: Scene) -> list[Claimed]:
    """Grant the claims of runs that wait to be claimed; returns the others, in order."""
    frame, effects = heard.frame, scene.effects
    rest, forms, opened = list[Claimed](), dict[object, RunForm](), list[Opened]()
    grants, seen = list[tuple[str, int, int, int]](), set[str]()
    for claim in frame.claims:
        run_id, attempt = claim
        found = None if run_id in seen else roll.untouched(run_id, effects)
        seen.add(run_id)
        if found is None or not _may_grant(found[1], attempt, heard.lane):
            rest.append(claim)
            continue
        held, run = found
        hold = held.hold
        like = run_likeness(run)
        form = forms.get(like)
        if form is None:
            form = forms[like] = RunForm(granted(run, heard))
        job_id, etag = run.job_id, run.etag
        now = form.run(run_id, job_id, etag)
        opened.append((hold.partition, run_id.encode(), form.lease(job_id.encode(), etag.encode()), now))
        grants.append((run_id, attempt, now.token, hold.lease_ms))
    effects.open_runs(opened)
    if grants:
        effects.answer(frame.worker, frame.inbox).grants.extend(grants)
        effects.counts["granted"] += len(grants)
    return rest


def granted(run: Run, heard: Heard) -> Run:
    """A queued run as its worker holds it from the append time of the claim on."""
    return run._replace(
        state=advance(run.state, RunEvent.GRANT),
        attempt=run.attempt + 1,
        token=run.token + 1,
        worker=heard.frame.worker,
        granted_ms=heard.appended_ms,
        reason=None,
    )


def holds(run: Run, token: int, heard: Heard) -> bool:
    """Whether a worker holds a run with this token. An open run is completed by whoever of its lane has the token."""
    is_its = run.worker in (heard.frame.worker, None) and run.lane == heard.lane
    return is_its and run.state is RUNNING and run.token == token


def _may_grant(run: Run, attempt: int, lane: str) -> bool:
    is_asked = run.state is QUEUED and run.attempt + 1 == attempt and run.lane == lane
    return is_asked and run.cancel is None and bool(run.etag)


class _Words(NamedTuple):
    """What is written about successes alike."""

    line: Callable[[bytes, bytes], bytes]
    result: Callable[[bytes, bytes, bytes], bytes]


class Successes:
    """The ends of one cycle that close their runs and set nothing else going.

    result_of: the result of an end; None for one to be looked at with care.
    """

    def __init__(self, roll: Roll, scene: Scene, *, result_of: Callable[[End], bytes | None]) -> None:
        self._roll = roll
        self._scene = scene
        self._result_of = result_of
        self._words: dict[object, _Words] = {}

    def close(self, ends: list[End], place: int, heard: Heard) -> int:
        """Close the runs that succeeded, from a place on up to the next end that is not plain; returns its place."""
        if self._has_ties():
            return place
        scene, closed, seen = self._scene, list[Closed](), set[str]()
        for end in ends[place:]:
            run_id = end.run_id
            found = None if run_id in seen else self._roll.untouched(run_id, scene.effects)
            if found is None or not self._is_plain(end, *found, heard):
                break
            result = self._result_of(end)
            if result is None:
                break
            seen.add(run_id)
            held, run = found
            scene.effects.ran.append((run.lane, scene.world.now_ms - run.granted_ms))
            words, key, job_id = self._words_of(run), run_id.encode(), run.job_id.encode()
            closed.append((held.hold.partition, run, key, words.line(key, job_id), words.result(key, job_id, result)))
        scene.effects.close_runs(closed, RunState.SUCCEEDED)
        return place + len(closed)

    def _has_ties(self) -> bool:
        """Whether any success may matter to others: who waits, a pace, a streak that it ends."""
        (world, effects), ties = self._scene, self._scene.world.ties
        return bool(
            ties.dependants or ties.waves or ties.streaks or effects.ties.streaks or world.paces or effects.paces
        )

    def _is_plain(self, end: End, held: Held, run: Run, heard: Heard) -> bool:
        is_success = end.outcome is SUCCEEDED and holds(run, end.token, heard)
        if not is_success or run.kept or run.history or run.trace or held.hold.follows:
            return False
        is_alone = self._roll.homes[held.hold.partition].live.is_only(run.job_id)
        return is_alone and run.job_id not in self._scene.effects.live_changes

    def _words_of(self, run: Run) -> _Words:
        like = run_likeness(run)
        words = self._words.get(like)
        if words is None:
            ended_ms = self._scene.world.now_ms
            words = self._words[like] = _Words(
                executions.succeeded_of(run, ended_ms=ended_ms), results.succeeded_of(run, ended_ms=ended_ms)
            )
        return words
