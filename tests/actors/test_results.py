"""What comes of a run: the result for others, the line of history, and frames that are none."""

from __future__ import annotations

import time

import msgspec
import orjson
import pytest
from tests.actors.workers import W1, beats, begin, claims, denials, end, grants, now, only, say

from noontide.core.run import RunState
from noontide.records.worker_events import RESULT_MAX_BYTES, End, Frame, Outcome, encode_frame
from noontide.testing.memory_stage import MemoryStage

RUN = "a:20260301T000000Z"


async def test_a_result_is_passed_on_byte_for_byte(stage: MemoryStage) -> None:
    await begin(stage, tenant="acme")
    await stage.advance(1_234)
    text = b'{"rows":1.50,"note":"\xc3\xa9\\u0000"}'
    await say(stage, end(RUN, 1, result=msgspec.Raw(text)))
    (record,) = stage.records("noontide.results")
    assert record.key == b"a"
    assert text in (record.value or b"")
    (result,) = stage.results()
    assert result == {
        "run_id": RUN, "job_id": "a", "tenant": "acme", "due": "2026-03-01T00:00:00.000Z", "state": "succeeded",
        "attempt": 1, "token": 1, "ended_at": "2026-03-01T00:00:01.234Z", "result": orjson.loads(text),
    }  # fmt: skip


async def test_the_line_of_history(stage: MemoryStage) -> None:
    stage.put(now(priority=3))
    await stage.advance(2_000)
    await say(stage, claims((RUN, 1)))
    await stage.advance(3_000)
    await say(stage, end(RUN, 1))
    (line,) = stage.executions("a")
    assert {name: line[name] for name in line if name != "tzdata"} == {
        "run_id": RUN, "job_id": "a", "tenant": "default", "due": "2026-03-01T00:00:00.000Z", "state": "succeeded",
        "attempt": 1, "token": 1, "target": "handler:work", "worker": W1, "late_ms": 2_000,
        "claimed_at": "2026-03-01T00:00:00.000Z", "queued_at": "2026-03-01T00:00:00.000Z",
        "started_at": "2026-03-01T00:00:02.000Z",
        "ended_at": "2026-03-01T00:00:05.000Z",
    }  # fmt: skip


async def test_a_result_that_was_cut_says_so(stage: MemoryStage) -> None:
    await begin(stage)
    await say(stage, end(RUN, 1, result=msgspec.Raw(b'"beg"'), truncated=True))
    assert (stage.results()[0]["result"], stage.results()[0]["truncated"]) == ("beg", True)


@pytest.mark.parametrize("result", [b'"' + b"x" * RESULT_MAX_BYTES + b'"', b'"\xff"'])
async def test_a_result_that_is_too_large_or_no_text_is_left_out(stage: MemoryStage, result: bytes) -> None:
    await begin(stage)
    await say(stage, end(RUN, 1, result=msgspec.Raw(result)))
    assert [line["state"] for line in stage.executions("a")] == ["succeeded"]
    assert "result" not in stage.results()[0]
    assert stage.results()[0]["truncated"] is True


async def test_the_greatest_result_is_kept(stage: MemoryStage) -> None:
    await begin(stage)
    await say(stage, end(RUN, 1, result=msgspec.Raw(b'"' + b"x" * (RESULT_MAX_BYTES - 2) + b'"')))
    assert len(str(stage.results()[0]["result"])) == RESULT_MAX_BYTES - 2


async def test_reasons_of_any_length_are_cut(stage: MemoryStage) -> None:
    await begin(stage)
    await say(stage, end(RUN, 1, Outcome.HANDED_BACK, error="x" * 100_000))
    await say(stage, claims((RUN, 1)))
    await say(stage, end(RUN, 2, Outcome.FAILED, error="x" * 100_000, permanent=True))
    assert max(len(record.value or b"") for record in stage.records("noontide.leases")) < 4_000
    assert len(stage.records("noontide.executions")[0].value or b"") < 4_000


FRAMES = [
    b"", b"\0", b"null", b"[]", b"{", b'{"claims":1}', b'{"worker":"w-1","claims":[[1,2]]}',
    b'{"worker":"w-1","claims":[["a"]]}', b'{"worker":"w-1","inbox":-1,"claims":[["a:m1",1]]}',
    b'{"worker":"w-1","inbox":16,"claims":[["a:m1",1]]}', b'{"worker":"w-1","beats":[["a:m1",1.5]]}',
    b'{"claims":[["a:m1",1]]}', b'{"worker":"","ends":[{"run_id":"a:m1","token":1,"outcome":"succeeded"}]}',
    b'{"worker":"w-1","ends":[{"run_id":"a:m1","token":1,"outcome":"exploded"}]}',
    b'{"worker":"w-1","ends":[{"run_id":"a:m1","token":1,"outcome":"succeeded","result":' + b"[" * 5_000 + b"}]}",
    b'{"worker":"w-1","ends":[{"run_id":"a:m1","token":1,"outcome":"succeeded","result":'
    + b"[" * 5_000 + b"]" * 5_000 + b"}]}",
    b'{"worker":"' + b"w" * 201 + b'","claims":[["a:m1",1]]}', b'{"worker":"\xff"}', b"\xff" * 1_000,
]  # fmt: skip


@pytest.mark.parametrize("frame", FRAMES, ids=range(len(FRAMES)))
async def test_what_is_no_frame_is_passed_over(stage: MemoryStage, frame: bytes) -> None:
    stage.put(now())
    await stage.run_until_idle()
    await say(stage, frame, claims((RUN, 1)))
    assert grants(stage) == [(RUN, 1, 1, 30_000)]
    assert len(stage.answers()) == 1
    await stage.crash(from_log_alone=True)
    assert only(stage).state is RunState.RUNNING


async def test_absurd_numbers_and_unknown_fields_do_no_harm(stage: MemoryStage) -> None:
    await begin(stage)
    huge = 10**40
    await say(
        stage,
        encode_frame(Frame(worker=W1, claims=[(RUN, huge), (RUN, -huge)], beats=[(RUN, huge)])),
        b'{"worker":"w-1","beats":[["a:20260301T000000Z",1]],"later":{"x":1}}',
        encode_frame(Frame(worker=W1, ends=[End(run_id=RUN, token=huge, outcome=Outcome.SUCCEEDED)])),
        encode_frame(Frame(worker=W1, progress=[(RUN, 1, float(huge), "x" * 1_000)])),
    )
    assert only(stage).state is RunState.RUNNING
    assert len(denials(stage)) == 2


async def test_frames_of_many_claims_are_answered_in_records_that_fit(stage: MemoryStage) -> None:
    await begin(stage)
    frame = Frame(worker=W1, claims=[(f"n{number}:m1", 1) for number in range(40_000)])
    await say(stage, frame, frame, frame, end(RUN, 1))
    assert len(denials(stage)) == 120_000
    assert [line["state"] for line in stage.executions("a")] == ["succeeded"]
    sizes = [len(record.value or b"") for record in stage.records("noontide.worker-inbox")]
    assert max(sizes) < 100_000


async def test_ten_thousand_runs_are_held_by_frames_of_fifty() -> None:
    """Measured, not judged: how long a slot needs for the heartbeats and the ends of 10,000 runs."""
    async with MemoryStage() as stage:
        for number in range(10_000):
            stage.put(now(f"j{number:05}"))
        await stage.run_until_idle()
        while waiting := [name for name, run in stage.leases().items() if run.state is RunState.QUEUED]:
            await say(stage, *(claims(*((name, 1) for name in part)) for part in _parts(waiting)))
        held = {name: run.token for name, run in stage.leases().items()}
        assert len(held) == 10_000
        before = len(stage.records("noontide.state"))
        spent_ms = {}
        for what, frames in (
            ("heartbeats", [beats(*((name, held[name]) for name in part)) for part in _parts(list(held))]),
            ("ends", [_ends(part, held) for part in _parts(list(held))]),
        ):
            for frame in frames:
                stage.say(frame)
            stage.slots[0]._feed.pump()
            began = time.perf_counter()
            await stage.slots[0].slot.cycle()
            spent_ms[what] = 1_000 * (time.perf_counter() - began)
            if what == "heartbeats":
                assert len(stage.records("noontide.state")) == before
        print("10,000 runs in frames of 50, one cycle each:", {name: round(ms) for name, ms in spent_ms.items()}, "ms")
        await stage.run_until_idle()
        assert len(stage.results()) == 10_000
        assert stage.leases() == {}


def _parts(names: list[str]) -> list[list[str]]:
    return [names[start : start + 50] for start in range(0, len(names), 50)]


def _ends(names: list[str], tokens: dict[str, int]) -> Frame:
    ends = [End(run_id=name, token=tokens[name], outcome=Outcome.SUCCEEDED) for name in names]
    return Frame(worker=W1, ends=ends)
