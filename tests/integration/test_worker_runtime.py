"""Workers on a real broker, as processes and in this one, against an owner that stands in for the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from tests.integration.stand_in_owner import StandInOwner
from tests.integration.worker_process import WorkerProcess
from tests.worker.memory_owner import invitation

from noontide import worker
from noontide.adapters.kafka.classic_group import Ledger
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.topics import ensure_topics
from noontide.adapters.kafka.worker_bus import inbox_of
from noontide.apps.worker_wiring import GroupProtocol, WorkerOptions, run_worker
from noontide.records.topics import Layout
from noontide.records.worker_events import Outcome
from noontide.records.worker_inbox import Answer
from noontide.worker.holding import DeskSettings
from noontide.worker.runtime import WorkerSettings

SLOTS = 4
PROTOCOLS = (GroupProtocol.SHARE, GroupProtocol.CLASSIC)


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture
def owner(kafka: Kafka, prefix: str) -> Iterator[StandInOwner]:
    with owning(kafka.bootstrap, prefix) as listening:
        yield listening


@contextmanager
def owning(bootstrap: str, prefix: str) -> Iterator[StandInOwner]:
    """An owner of an installation of its own."""
    layout = Layout(prefix=prefix, partitions=SLOTS, slots=SLOTS)
    ensure_topics(bootstrap, layout, domains=(), lanes=("default",))
    with StandInOwner(bootstrap, layout).listening() as owner:
        yield owner


@asynccontextmanager
async def working(
    app: worker.App, owner: StandInOwner, protocol: GroupProtocol, **desk: int
) -> AsyncIterator[asyncio.Event]:
    """A worker in this process."""
    options = WorkerOptions(
        connection=KafkaConnection(owner.bootstrap),
        layout=owner.layout,
        protocol=protocol,
        settings=WorkerSettings(desk=DeskSettings(**{"concurrency": 100, **desk}), drain_ms=10_000),
    )
    stop = asyncio.Event()
    task = asyncio.create_task(run_worker(app, options, stop))
    try:
        yield stop
    finally:
        stop.set()
        await task


def publish(owner: StandInOwner, numbers: range, **members: object) -> None:
    """One invitation per number, spread over the slots."""
    values = [(b"job", invitation(each, **{**members, "slot": each % SLOTS})) for each in numbers]  # type: ignore[arg-type]
    owner.publish(values, [each % SLOTS for each in numbers])


def run(number: int) -> str:
    return f"job-{number}:20260301T000000Z"


def runs(numbers: range) -> set[str]:
    return {run(number) for number in numbers}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_runs_are_claimed_started_and_ended_once(owner: StandInOwner, protocol: GroupProtocol) -> None:
    app, started = worker.App(), list[str]()

    @app.handler("noop")
    async def noop(payload: dict[str, int], ctx: worker.Context) -> int:
        started.append(ctx.run_id)
        return payload["number"] + 1

    total = range(2_000)
    async with working(app, owner, protocol, concurrency=500):
        await asyncio.to_thread(publish, owner, total, payload={"number": 1})
        await asyncio.to_thread(owner.until, lambda heard: len(heard.ends) == len(total), what="all ends")
    assert sorted(started) == sorted(runs(total))
    assert {(end.outcome, bytes(end.result)) for end in owner.heard.ends.values()} == {(Outcome.SUCCEEDED, b"2")}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_an_aborted_transaction_published_is_not_seen(owner: StandInOwner, protocol: GroupProtocol) -> None:
    app = worker.App()
    app.handler("noop")(lambda: None)
    await asyncio.to_thread(owner.publish, [(b"job", invitation(99, slot=0))], [0], commit=False)
    async with working(app, owner, protocol):
        await asyncio.to_thread(publish, owner, range(4))
        await asyncio.to_thread(owner.until, lambda heard: runs(range(4)) <= heard.ends.keys(), what="four ends")
    assert {run_id for run_id, _ in owner.heard.claims} == runs(range(4))


async def test_a_claim_whose_answer_is_lost_is_repeated_and_answered_again(owner: StandInOwner) -> None:
    app = worker.App()
    app.handler("noop")(lambda: None)
    owner.answers = False
    async with working(app, owner, GroupProtocol.CLASSIC, claim_retry_ms=200):
        await asyncio.to_thread(publish, owner, range(1))
        await asyncio.to_thread(owner.until, lambda heard: len(heard.claims) >= 3, what="repeated claims")
        owner.answers = True
        await asyncio.to_thread(owner.until, lambda heard: run(0) in heard.ends, what="the end")
    assert owner.heard.ends[run(0)].outcome is Outcome.SUCCEEDED


async def test_a_cancel_and_progress_go_through_the_inbox_and_the_events(owner: StandInOwner) -> None:
    app = worker.App()

    @app.handler("noop")
    def noop(ctx: worker.Context) -> None:
        ctx.progress(0.25, "a quarter")
        if ctx.wait_cancelled(30):
            raise worker.Cancelled

    async with working(app, owner, GroupProtocol.CLASSIC):
        await asyncio.to_thread(publish, owner, range(1))
        await asyncio.to_thread(owner.until, lambda heard: run(0) in heard.progress, what="progress")
        (name,) = owner.heard.workers
        answer = Answer(worker=name, slot=0, cancels=[(run(0), owner.token(run(0)), "by hand")])
        await asyncio.to_thread(owner.say, answer, inbox_of(name))
        await asyncio.to_thread(owner.until, lambda heard: run(0) in heard.ends, what="the end")
    assert owner.heard.progress[run(0)] == (0.25, "a quarter")
    assert owner.heard.ends[run(0)].outcome is Outcome.CANCELLED


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_worker_that_stays_full_leaves_its_runs_to_others(owner: StandInOwner, protocol: GroupProtocol) -> None:
    busy, idle = worker.App(), worker.App()

    @busy.handler("noop")
    def hang(ctx: worker.Context) -> str:
        ctx.wait_cancelled(60)
        return "busy"

    idle.handler("noop")(lambda: "idle")
    async with working(busy, owner, protocol, concurrency=1, prefetch=50, hold_ms=500) as stop:
        await asyncio.to_thread(publish, owner, range(40))
        await asyncio.to_thread(owner.until, lambda heard: len(heard.granted) == 1, what="the busy one has one")
        async with working(idle, owner, protocol):
            await asyncio.to_thread(owner.until, lambda heard: len(heard.ends) == 39, what="the others")
        (left,) = runs(range(40)) - owner.heard.ends.keys()
        name = owner.heard.granted[left]
        answer = Answer(worker=name, slot=0, cancels=[(left, owner.token(left), "end of the test")])
        await asyncio.to_thread(owner.say, answer, inbox_of(name))
        await asyncio.to_thread(owner.until, lambda heard: left in heard.ends, what="the last one")
        assert not stop.is_set()
    assert {bytes(end.result) for run_id, end in owner.heard.ends.items() if run_id != left} == {b'"idle"'}


# --- processes


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sigterm_finishes_what_runs_releases_the_rest_and_ends_with_0(
    kafka: Kafka, owner: StandInOwner, tmp_path: Path, protocol: GroupProtocol
) -> None:
    done = tmp_path / "done"
    options = ("--group-protocol", protocol.value, "--concurrency", "2", "--drain", "20s")
    where = {"bootstrap": kafka.bootstrap, "prefix": owner.layout.prefix}
    with WorkerProcess(tmp_path, "first", **where) as first, WorkerProcess(tmp_path, "second", **where) as second:
        first.start(*options)
        publish(owner, range(12), handler="file", payload={"until": str(done)})
        owner.until(lambda heard: len(heard.progress) == 2, what="two are running")
        first.ask_to_end()
        second.start(*options)
        owner.until(lambda heard: len(heard.granted) == 4, what="the second worker takes what the first released")
        assert owner.heard.ends == {}
        done.touch()
        assert first.exit_code() == 0
        owner.until(lambda heard: heard.ends.keys() == runs(range(12)), what="all ends")
        assert second.terminate() == 0
        assert "has stopped" in first.log
    assert {end.outcome for end in owner.heard.ends.values()} == {Outcome.SUCCEEDED}
    assert len({bytes(end.result) for end in owner.heard.ends.values()}) == 2


@pytest.mark.slow
def test_after_kill_9_a_classic_group_hands_the_unclaimed_to_another(
    kafka: Kafka, owner: StandInOwner, tmp_path: Path
) -> None:
    kill_one_of_two(owner, tmp_path, GroupProtocol.CLASSIC)


@pytest.mark.slow
def test_after_kill_9_a_share_group_hands_the_unclaimed_to_another(prefix: str, tmp_path: Path) -> None:
    """On a broker that allows sessions shorter than 45 s."""
    properties = {"group.share.min.session.timeout.ms": "6000", "group.share.min.heartbeat.interval.ms": "1000"}
    with (
        EmbeddedKafka(tmp_path / "kafka", properties=properties, fast_start=True) as kafka,
        owning(kafka.bootstrap, prefix) as owner,
    ):
        kill_one_of_two(owner, tmp_path, GroupProtocol.SHARE)


def kill_one_of_two(owner: StandInOwner, folder: Path, protocol: GroupProtocol) -> None:
    options = ("--group-protocol", protocol.value, "--concurrency", "2", "--prefetch", "50")
    where = {"bootstrap": owner.bootstrap, "prefix": owner.layout.prefix}
    with WorkerProcess(folder, "killed", **where) as killed, WorkerProcess(folder, "other", **where) as other:
        killed.start(*options, environment={"HANG": "1"})
        publish(owner, range(40))
        owner.until(lambda heard: len(heard.granted) == 2, what="two are granted")
        killed.kill()
        taken = set(owner.heard.granted)
        other.start(*options)
        owner.until(lambda heard: len(heard.ends) == 38, what="all others")
        assert other.terminate() == 0
    assert owner.heard.ends.keys() == runs(range(40)) - taken
    # What the dead one had claimed is its own until the lease ends, whether or not the group delivered it once more.
    dead, alive = ({owner.heard.granted[run_id] for run_id in some} for some in (taken, owner.heard.ends))
    assert (len(dead), len(alive), dead & alive) == (1, 1, set())


def test_the_command_says_who_it_is_and_what_it_can_do(kafka: Kafka, owner: StandInOwner, tmp_path: Path) -> None:
    with WorkerProcess(tmp_path, "w", bootstrap=kafka.bootstrap, prefix=owner.layout.prefix) as process:
        process.start()
        publish(owner, range(1))
        owner.until(lambda heard: run(0) in heard.ends, what="the end")
        assert process.terminate() == 0
        (name,) = owner.heard.workers
        assert f"worker {name}: handlers file, noop; HTTP off" in process.log
        assert f"lane default: share group {owner.layout.prefix}workers.default" in process.log


async def test_without_topics_the_worker_says_so(kafka: Kafka, prefix: str, tmp_path: Path) -> None:
    with WorkerProcess(tmp_path, "w", bootstrap=kafka.bootstrap, prefix=prefix) as process:
        process.start()
        assert await asyncio.to_thread(process.exit_code) == 1
        assert "no Noontide topics with the prefix" in process.log


# --- offsets of a classic group


def test_an_offset_is_committed_when_everything_before_it_is_settled() -> None:
    ledger = Ledger()
    for offset in (5, 6, 8):  # 7 is the marker of a transaction
        ledger.delivered((0, offset))
    assert ledger.settled((0, 6)) is None
    assert ledger.settled((0, 5)) == 7
    assert ledger.settled((0, 5)) is None
    assert ledger.settled((1, 5)) is None
    assert ledger.open == 1
    assert ledger.settled((0, 8)) == 9


def test_what_is_rewound_comes_again_with_everything_after_it() -> None:
    ledger = Ledger()
    for offset in (5, 6, 7):
        ledger.delivered((0, offset))
    ledger.settled((0, 7))
    assert ledger.rewound((0, 6))
    assert not ledger.rewound((0, 7))
    assert ledger.settled((0, 7)) is None
    assert ledger.settled((0, 5)) == 6


def test_the_inbox_of_a_worker_is_where_javas_default_partitioner_puts_its_id() -> None:
    assert inbox_of("w-7f3a91c2") == 8
