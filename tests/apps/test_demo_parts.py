"""What the demo is made of: the board, what goes wrong on purpose, processes, the examples."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import cast

import orjson
import pytest

from noontide.apps.cli.common import Fault
from noontide.apps.cli.definitions import split
from noontide.apps.demo import score
from noontide.apps.demo.board import Board, arrived
from noontide.apps.demo.cast import Cast, assigned_slots, slots_taken
from noontide.apps.demo.mishaps import SCHEDULER_AT_S, WORKER_AT_S, Mishaps
from noontide.apps.demo.processes import Process, start, stop_all
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.core.run import Run, RunState
from noontide.core.targets import HandlerTarget
from noontide.examples.handlers import app
from noontide.examples.http_server import serve
from noontide.examples.http_target import Memory, OncePerRun
from noontide.ports.record_log import Incoming
from noontide.testing.checker import Report

DUE_MS = 1_798_135_200_000  # 2026-12-24T18:00:00Z


def record(appended_ms: int, **fields: object) -> Incoming:
    execution = {"run_id": "j:m1", "job_id": "j", "due": "2026-12-24T18:00:00.000Z", "state": "succeeded", **fields}
    return Incoming("executions", 0, 7, appended_ms, b"j:m1", orjson.dumps(execution), [])


def running(run_id: str, worker: str, *, granted_ms: int = DUE_MS) -> Run:
    return Run(
        run_id=run_id, job_id="j", tenant="default", state=RunState.RUNNING, due_ms=DUE_MS, start_ms=DUE_MS,
        claimed_ms=DUE_MS, target="handler:x", worker=worker, granted_ms=granted_ms, attempt=1, lane="default",
    )  # fmt: skip


# --- the board


def test_a_record_is_late_by_its_append_and_a_worker_by_its_first_start() -> None:
    assert arrived(record(DUE_MS + 9)).late_ms == 9
    by_worker = arrived(record(DUE_MS + 3_000, started_at="2026-12-24T18:00:00.020Z"))
    assert (by_worker.late_ms, by_worker.took_ms) == (20, 2_980)
    earlier = json.dumps([{"granted": DUE_MS + 5}])
    assert arrived(record(DUE_MS + 9_000, started_at="2026-12-24T18:00:08.000Z", attempts=earlier)).late_ms == 5


def test_the_board_knows_what_workers_have() -> None:
    board = Board(jobs=1)
    board.note_lease("a", running("a", "w-1"))
    board.note_lease("b", running("b", "w-1"))
    assert board.workers() == {"w-1": 2}
    board.note_lease("a", running("a", "w-1")._replace(state=RunState.RETRY_WAIT))
    board.note_lease("b", None)
    assert board.workers() == {}


# --- what goes wrong


@dataclass(eq=False)
class Actor:
    """A process that is not one."""

    name: str
    text: str
    pid: int = 7
    killed: bool = False
    code: int | None = None

    def said(self) -> str:
        return self.text

    def kill(self) -> None:
        self.killed, self.code = True, -9


@dataclass
class Play:
    """A cast of such, and what was said."""

    schedulers: list[Actor] = field(default_factory=lambda: [Actor("scheduler 1", ""), Actor("scheduler 2", "")])
    workers: list[Actor] = field(default_factory=lambda: [Actor("worker 1", ""), Actor("worker 2", "")])
    board: Board = field(default_factory=lambda: Board(jobs=1))
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, worker in enumerate(self.workers, start=1):
            worker.text = f"worker w-{number}: handlers\n"
        schedulers, workers = (cast("list[Process]", actors) for actors in (self.schedulers, self.workers))
        players = Cast(schedulers=schedulers, workers=workers, http_target=cast("Process", Actor("http", "")))
        self.mishaps = Mishaps(cast=players, board=self.board, say=self.said.append)


def test_a_scheduler_is_killed_when_it_has_slots_and_the_other_one_takes_just_those() -> None:
    play = Play()
    first, second = play.schedulers
    play.mishaps.step(SCHEDULER_AT_S - 0.001, [])
    play.mishaps.step(SCHEDULER_AT_S, [])
    assert not first.killed
    first.text, second.text = "slots: 0, 1, 2, 3\nslots: 2, 3\n", "slot 2: owned after 3 ms\nslots: 0, 1\n"
    play.mishaps.step(6.0, [])
    assert (first.killed, second.killed) == (True, False)
    second.text += "slot 3: owned after 5 ms"
    play.mishaps.step(7.0, [])
    assert len(play.said) == 1
    second.text += "slot 2: owned after 5 ms"
    play.mishaps.step(8.5, [])
    assert play.said == [
        "kill -9 scheduler 1 (process 7), the owner of slots 2, 3",
        "scheduler 2 has taken over slots 2, 3, 2.5 s after the kill",
    ]
    assert not play.mishaps.over


def test_a_worker_is_killed_in_the_middle_of_a_run_and_all_is_well_when_the_run_is_done() -> None:
    play = Play()
    play.schedulers[0].text = "slots: 2"
    play.mishaps.step(SCHEDULER_AT_S, [])
    play.schedulers[1].text = "slot 2: owned after 5 ms"
    play.mishaps.step(SCHEDULER_AT_S + 1, [])
    play.mishaps.step(WORKER_AT_S, [])
    assert not any(worker.killed for worker in play.workers)
    play.board.note_lease("j:m0", running("j:m0", "w-1"))
    play.board.note_lease("j:m1", running("j:m1", "w-2", granted_ms=DUE_MS + 1))
    play.mishaps.step(WORKER_AT_S + 1, [])
    assert [worker.killed for worker in play.workers] == [False, True]
    assert play.said[-1] == "kill -9 worker 2 (process 7, w-2) in the middle of j:m1"
    assert not play.mishaps.over
    play.mishaps.step(WORKER_AT_S + 9, [arrived(record(DUE_MS, worker="w-1", attempt=2))])
    assert play.said[-1] == "j:m1: succeeded, attempt 2 on w-1, 8 s after the kill"
    assert (play.mishaps.over, play.mishaps.killed) == (True, ["scheduler 1", "worker 2"])


def test_slots_are_read_from_what_a_scheduler_says() -> None:
    def of(text: str) -> Process:
        return cast("Process", Actor("s", text))

    assert assigned_slots(of("")) == ()
    assert assigned_slots(of("slots: 0, 11\nslots: none")) == ()
    assert slots_taken(of("slot 1: owned after 1 ms\nslot 12: owned after 2 ms"), after=24) == {12}


# --- processes


def test_a_process_says_something_and_stops(tmp_path: Path) -> None:
    process = start("the target", "noontide.examples.http_server", ["--port", "0"], log=tmp_path / "log")
    try:
        assert process.await_said(re.compile(r"listening on 127\.0\.0\.1:(\d+)"))[1] != "0"
        assert process.code is None
    finally:
        stop_all([process])
    assert process.code == -signal.SIGTERM


def test_a_process_that_ends_early_is_a_fault_with_its_last_words(tmp_path: Path) -> None:
    process = start("the target", "noontide.examples.http_server", ["--port", "none"], log=tmp_path / "log")
    with pytest.raises(Fault, match="the target ended with code 2: .*invalid int value: 'none'"):
        process.await_said(re.compile("listening"))
    stop_all([process])


def test_a_process_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    process = start("the target", "noontide.examples.http_server", ["--port", "0"], log=tmp_path / "log")
    process.await_said(re.compile("listening"))
    assert process.popen.stdin is not None
    process.popen.stdin.close()
    assert process.popen.wait(10) == -signal.SIGTERM


# --- examples


def examples() -> Mapping[str, bytes]:
    data = resources.files("noontide.examples").joinpath("workers.yaml").read_bytes()
    return {str(orjson.loads(source.text)["id"]): source.text for source in split(data, name="workers.yaml")}


@pytest.mark.parametrize("job_id", examples())
def test_example_jobs_are_valid_and_their_handlers_exist(job_id: str) -> None:
    context = DefinitionContext(key=None, tenant=None, created_ms=0, new_id="x", topic_prefix="noontide.")
    definition = parse_definition(examples()[job_id], context=context)
    assert definition.warnings == ()
    if isinstance(definition.job.target, HandlerTarget):
        assert definition.job.target.name in app.handlers


async def _exchange(port: int, *requests: bytes) -> list[bytes]:
    """Requests on one connection; heads and bodies of the answers, one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        answers.append(head.split(b"\r\n")[0] + b" " + await reader.readexactly(int(length[1])))
    writer.close()
    await writer.wait_closed()
    return answers


def _request(run_id: str, body: bytes) -> bytes:
    head = f"POST /stock HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {run_id}\r\nNoontide-Token: 1\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def test_the_example_server_keeps_connections_and_answers_what_the_work_raises(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[object] = []

    async def work(_run_id: str, payload: object) -> object:
        if payload == "bad":
            raise RuntimeError("no stock")
        done.append(payload)
        return {"n": len(done)}

    memory = Memory(":memory:")
    serving = asyncio.create_task(serve(OncePerRun(work, memory), 0))
    said = ""
    while "listening" not in said:
        await asyncio.sleep(0)
        said += capsys.readouterr().out
    port = int(said.rpartition(":")[2])
    answers = await _exchange(
        port, _request("a", b"1"), _request("a", b"1"), _request("b", b'"bad"'), _request("c", b"2")
    )
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    memory.close()
    assert answers == [
        b'HTTP/1.1 200 OK {"n": 1}', b'HTTP/1.1 200 OK {"n": 1}',
        b"HTTP/1.1 500 Internal Server Error ", b'HTTP/1.1 200 OK {"n": 2}',
    ]  # fmt: skip
    assert done == [1, 2]
    assert "RuntimeError: no stock" in capsys.readouterr().out


# --- the summary


def test_the_summary_says_who_did_what_and_who_was_killed() -> None:
    report = Report(until_ms=1, jobs=2, runs=5, by_workers=2, expected=5, delivered=5, unfinished=1)
    text = "\n".join(score.as_text(report, ["worker 1"]))
    assert "records on topics 3, finished by workers 2" in text
    assert "unfinished     1" in text
    assert "killed with kill -9: worker 1; nothing was lost" in text
    assert score.as_json(report, []) == {
        "jobs": 2, "runs": 5, "late_ms_p50": None, "late_ms_p99": None, "duplicates": 0, "missing": 0, "by_workers": 2,
    }  # fmt: skip
    assert score.as_json(report, ["worker 1"])["killed"] == ["worker 1"]
    assert "killed" not in "\n".join(score.as_text(report, []))
