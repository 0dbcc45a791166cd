"""The example target: a run is worked on once, whatever the network and the process do."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from noontide.examples.http_target import KEEP_S, WORK_MAX_S, Memory, OncePerRun


class Worker:
    """Counts what it is asked to do; fails and waits as told."""

    def __init__(self) -> None:
        self.done: list[tuple[str, object]] = []
        self.failure: Exception | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.begun = asyncio.Event()

    async def work(self, run_id: str, payload: object) -> object:
        self.begun.set()
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure
        self.done.append((run_id, payload))
        return {"number": len(self.done)}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "runs.sqlite")


@pytest.fixture
def memory(path: str) -> Iterator[Memory]:
    made = Memory(path)
    yield made
    made.close()


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
async def client(worker: Worker, memory: Memory) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(OncePerRun(worker.work, memory), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://target") as made:
        yield made


async def ask(client: httpx.AsyncClient, run_id: str = "a:m1", token: int = 1, body: str = '{"n":1}') -> httpx.Response:
    return await client.post("/", content=body, headers={"Idempotency-Key": run_id, "Noontide-Token": str(token)})


def age(path: str, seconds: int) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE runs SET begun_s = begun_s - ?", (seconds,))
    database.close()


async def test_a_repeat_gets_the_same_answer_and_no_work_is_done(client: httpx.AsyncClient, worker: Worker) -> None:
    first, repeat, other = await ask(client), await ask(client, token=2), await ask(client, "a:m2")
    assert (first.status_code, first.json()) == (repeat.status_code, repeat.json()) == (200, {"number": 1})
    assert other.json() == {"number": 2}
    assert worker.done == [("a:m1", {"n": 1}), ("a:m2", {"n": 1})]


async def test_a_repeat_during_the_work_is_told_to_come_back(client: httpx.AsyncClient, worker: Worker) -> None:
    worker.may_end.clear()
    first = asyncio.create_task(ask(client))
    await worker.begun.wait()
    repeat = await ask(client, token=2)
    assert (repeat.status_code, repeat.headers["retry-after"]) == (503, "5")
    worker.may_end.set()
    assert (await first).json() == (await ask(client, token=2)).json() == {"number": 1}


async def test_failed_work_is_done_again(client: httpx.AsyncClient, worker: Worker) -> None:
    worker.failure = RuntimeError("no")
    assert (await ask(client)).status_code == 500
    worker.failure = None
    assert (await ask(client)).json() == {"number": 1}


async def test_answers_survive_a_restart(client: httpx.AsyncClient, worker: Worker, path: str) -> None:
    await ask(client)
    again = Memory(path)
    answer = again.begin("a:m1", 2)
    again.close()
    assert answer == (200, b'{"number": 1}')
    assert len(worker.done) == 1


@pytest.mark.parametrize("seconds,known", [(KEEP_S - 5, True), (KEEP_S + 5, False)])
async def test_answers_are_kept_for_a_day(
    client: httpx.AsyncClient, worker: Worker, path: str, seconds: int, known: bool
) -> None:
    await ask(client)
    age(path, seconds)
    await ask(client)
    assert len(worker.done) == (1 if known else 2)


@pytest.mark.parametrize("seconds,again", [(WORK_MAX_S - 5, False), (WORK_MAX_S + 5, True)])
def test_a_run_whose_process_died_is_done_again_after_a_while(
    memory: Memory, path: str, seconds: int, again: bool
) -> None:
    assert memory.begin("a:m1", 1) is None
    age(path, seconds)
    answer = memory.begin("a:m1", 2)
    assert (answer is None) is again


def test_an_older_attempt_changes_nothing(memory: Memory, path: str) -> None:
    memory.begin("a:m1", 1)
    age(path, WORK_MAX_S + 5)
    assert memory.begin("a:m1", 2) is None
    older = memory.begin("a:m1", 1)
    assert older is not None
    assert older.status == 409
    memory.forget("a:m1", 1)
    busy = memory.begin("a:m1", 2)
    assert busy is not None
    assert busy.status == 503


async def test_requests_that_name_no_run_are_refused(client: httpx.AsyncClient, worker: Worker) -> None:
    assert (await client.post("/")).status_code == 400
    assert (await client.post("/", headers={"Idempotency-Key": "a", "Noontide-Token": "x"})).status_code == 400
    assert (await ask(client, body="x" * 1_048_577)).status_code == 413
    assert worker.done == []
