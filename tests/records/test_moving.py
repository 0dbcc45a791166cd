"""Every record of an owner follows its job when the number of slots changes."""

from __future__ import annotations

import pytest

from noontide.core.run import Run, RunState
from noontide.ports.record_log import Incoming, Record
from noontide.records import dependencies, exact_starts, state
from noontide.records.backfills import backfill_key
from noontide.records.leases import encode_lease
from noontide.records.moving import Moving, Unmovable, history_partitions
from noontide.records.runs import decode_invitation
from noontide.records.signals import Ask, Edge, encode_signal
from noontide.records.topics import Layout
from noontide.records.worker_events import End, Frame, Outcome, decode_frame, encode_frame

OLD = Layout(partitions=16, slots=2)
NEW = Layout(partitions=16, slots=8, former_slots=(2,))
JOBS = [f"job-{number}" for number in range(40)]


def slot_of(job_id: str, layout: Layout = NEW) -> int:
    return layout.slot_of(layout.partition_of(job_id))


def incoming(topic: str, record: Record, partition: int = 0) -> Incoming:
    return Incoming(f"noontide.{topic}", partition, 5, 1_000, *record)


def run(job_id: str, run_state: RunState = RunState.QUEUED, **fields: object) -> Run:
    made = Run(
        run_id=f"{job_id}:20260301T000000Z", job_id=job_id, tenant="t", state=run_state, due_ms=0, start_ms=0,
        claimed_ms=0, target="handler:x", lane="default", attempt=1, token=0,
    )  # fmt: skip
    return made._replace(**fields)  # type: ignore[arg-type] # by name


@pytest.mark.parametrize("job_id", JOBS[:8])
def test_what_belongs_to_a_job_goes_to_its_slot(job_id: str) -> None:
    run_id = f"{job_id}:20260301T000000Z"
    keys = [
        state.cursor_record_key(job_id.encode()),
        state.RUN + run_id.encode(),
        state.DEAD + run_id.encode(),
        state.guard_record_key(job_id.encode(), "k"),
        state.position_record_key(NEW.partition_of(job_id)),
        state.verdict_record_key(f"requests.api/{NEW.partition_of(job_id)}/17"),
        state.rate_record_key(job_id),
        dependencies.edge_key(job_id, "other"),
        dependencies.after_key(job_id),
        dependencies.wave_key(job_id, "m5"),
        state.JOIN + f"{job_id}/5/w".encode(),
        backfill_key(job_id),
        exact_starts.held_key(job_id, "requests.api/3/17"),
    ]
    for key in keys:
        for value in (b"{}", None):
            moved = Moving(OLD, NEW).state(incoming("state", Record(key, value, [("h", b"1")])))
            assert moved is not None
            assert (moved.topic, moved.partition) == ("state", slot_of(job_id)), key
            assert moved.record == Record(key, value, [("h", b"1")])


def test_a_job_that_counts_goes_to_the_slot_of_its_tenants_quota() -> None:
    key = exact_starts.exact_key("billing", "job-1")
    assert exact_starts.exact_key_parts(key) == ("billing", "job-1")
    moved = Moving(OLD, NEW).state(incoming("state", Record(key, b"{}")))
    assert moved is not None
    assert moved.partition == slot_of(exact_starts.quota_name("billing"))


@pytest.mark.parametrize("key", [b"strange/x", b"", b"cursor"])
def test_what_is_not_known_stops_everything(key: bytes) -> None:
    with pytest.raises(Unmovable):
        Moving(OLD, NEW).state(incoming("state", Record(key, b"1")))


def test_the_mailboxes_begin_anew_and_their_positions_are_known() -> None:
    moving = Moving(OLD, NEW)
    value = state.encode_position(state.Position({"signals/3": 7, "worker-events.default": 9}, 0, 1))
    assert moving.state(incoming("state", Record(state.position_record_key("slot-1"), value), 1)) is None
    assert moving.mailboxes == {1: {"signals/3": 7, "worker-events.default": 9}}


def test_permits_follow_from_the_live_runs() -> None:
    moving = Moving(OLD, NEW)
    old = [state.permits_record_key("l", "t"), state.limiter_record_key("l", "t", 1)]
    assert [moving.state(incoming("state", Record(key, b'{"held":9}'))) for key in old] == [None, None]
    for job_id in JOBS[:3]:
        live = run(job_id, permits=("l",))
        moving.lease(incoming("leases", Record(live.run_id.encode(), encode_lease(live))), live)
    waits = run(JOBS[3], RunState.PENDING, awaits="l")
    moving.lease(incoming("leases", Record(waits.run_id.encode(), encode_lease(waits))), waits)
    gone = run(JOBS[4], permits=("l",))
    moving.lease(incoming("leases", Record(gone.run_id.encode(), encode_lease(gone))), gone)
    moving.lease(incoming("leases", Record(gone.run_id.encode(), None)), None)
    found = list(moving.anew())
    ours = [each for each in found if (each.record.key or b"").startswith(state.PERMITS)]
    theirs = [each for each in found if (each.record.key or b"").startswith(state.LIMITER)]
    assert {each.partition for each in theirs} == {slot_of("l")}
    assert {each.partition for each in ours} == {slot_of(job_id) for job_id in JOBS[:4]}
    held = [state.decode_counts(each.record.value or b"", "held", "asked") for each in ours]
    given = [state.decode_counts(each.record.value or b"", "given", "wanted") for each in theirs]
    assert (sum(each[0] for each in held), sum(each[1] for each in held)) == (3, 1)
    assert sorted(held) == sorted(given)


@pytest.mark.parametrize("versions, moved", [((b"2026a", b"2026a"), 8), ((b"2026a", b"2025b"), 0), ((b"2026a",), 0)])
def test_the_time_zone_release_is_kept_when_all_slots_agree(versions: tuple[bytes, ...], moved: int) -> None:
    moving = Moving(OLD, NEW)
    for slot, version in enumerate(versions):
        assert moving.state(incoming("state", Record(state.TZDATA, version), slot)) is None
    assert len(list(moving.anew())) == moved


def test_signals_go_from_slot_to_slot() -> None:
    moving = Moving(OLD, NEW)
    for kind in (Edge(upstream=JOBS[0], downstream=JOBS[1]), Edge(upstream=JOBS[2], downstream=JOBS[1], gone=True)):
        moved = moving.signal(incoming("signals", encode_signal(kind), OLD.signals_partition(0, 1)))
        assert moved is not None
        assert moved.partition == NEW.signals_partition(slot_of(kind.upstream), 4), (
            "slot 1 of 2 begins where 4 of 8 does"
        )
    forward = Record(JOBS[5].encode(), b"{}", [("kind", b"forward")])
    moved = moving.signal(incoming("signals", forward, 0))
    assert moved is not None
    assert moved.partition == NEW.signals_partition(slot_of(JOBS[5]), 0)
    assert moved.record == forward
    assert moving.signal(incoming("signals", encode_signal(Ask("l", "t", 1)), 0)) is None
    assert moving.signal(incoming("signals", Record(b"x", b"nonsense"), 0)) is None


def test_frames_are_taken_apart() -> None:
    ids = [f"{job_id}:20260301T000000Z" for job_id in JOBS]
    frame = Frame(
        worker="w",
        inbox=3,
        claims=[(each, 1) for each in ids],
        beats=[(each, 2) for each in ids],
        ends=[End(run_id=each, token=2, outcome=Outcome.SUCCEEDED) for each in ids],
        progress=[(each, 2, 0.5, "") for each in ids],
    )
    parts = list(Moving(OLD, NEW).frames(incoming("worker-events.default", Record(b"w", encode_frame(frame)))))
    assert [slot for slot, _ in parts] == list(range(8))
    found = [(slot, decode_frame(value)) for slot, value in parts]
    assert all((part.worker, part.inbox) == ("w", 3) for _, part in found)
    for slot, part in found:
        named = [claim[0] for claim in part.claims]
        assert named == [beat[0] for beat in part.beats] == [end.run_id for end in part.ends]
        assert named == [step[0] for step in part.progress]
        assert {slot_of(run_id.partition(":")[0]) for run_id in named} == {slot}
    assert sorted(claim[0] for _, part in found for claim in part.claims) == sorted(ids)
    assert list(Moving(OLD, NEW).frames(incoming("worker-events.default", Record(b"w", b"nonsense")))) == []


@pytest.mark.parametrize("waiting, attempt, kept", [(RunState.QUEUED, 1, True), (RunState.QUEUED, 2, False)])
def test_invitations_of_runs_that_still_wait_name_the_new_slot(waiting: RunState, attempt: int, kept: bool) -> None:
    moving, live = Moving(OLD, NEW), run(JOBS[7], waiting)
    moving.lease(incoming("leases", Record(live.run_id.encode(), encode_lease(live))), live)
    value = (
        b'{"run_id":"%s","slot":1,"due":0,"attempt":%d,"job_id":"j","tenant":"t","max_attempts":3,"target":{},'
        b'"timeout_ms":1,"lease_ms":2,"heartbeat_ms":3,"payload":{"slot":1}}' % (live.run_id.encode(), attempt)
    )
    found = moving.invitation(incoming("runs.default", Record(JOBS[7].encode(), value)), live.run_id, attempt)
    assert (found is not None) is kept
    if found is not None:
        slot, record = found
        invitation = decode_invitation(record.value or b"")
        assert slot == invitation.slot == slot_of(JOBS[7])
        assert invitation.payload == b'{"slot":1}'


def test_invitations_of_runs_that_are_over_stay_behind() -> None:
    moving = Moving(OLD, NEW)
    assert moving.invitation(incoming("runs.default", Record(b"j", b"{}")), "j:20260301T000000Z", 1) is None
    live = run("j", RunState.RUNNING)
    moving.lease(incoming("leases", Record(live.run_id.encode(), encode_lease(live))), live)
    assert moving.invitation(incoming("runs.default", Record(b"j", b"{}")), live.run_id, 1) is None


def test_where_the_history_of_a_job_may_be() -> None:
    assert history_partitions(OLD, 9) == [1]
    assert history_partitions(NEW, 9) == [1, 4]
    assert NEW.topic_partitions("executions") == 8
    assert Layout(partitions=16, slots=2, former_slots=(2, 8)).topic_partitions("executions") == 8
