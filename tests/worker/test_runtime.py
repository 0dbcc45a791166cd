"""A whole worker against a group and an owner in memory: threads, loops, time limits, and the way out."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.worker.memory_owner import MemoryOwner, MemorySource, invitation

from noontide import worker
from noontide.adapters.system_clock import boot_ms
from noontide.records.runs import Invitation
from noontide.records.worker_events import End, Outcome
from noontide.records.worker_inbox import Answer
from noontide.worker.attempt import Attempt
from noontide.worker.holding import DeskSettings, Holding
from noontide.worker.runtime import TICK_MAX_MS, Runtime, WorkerPorts, WorkerSettings
from noontide.worker.stage import HttpStage

HEARTBEAT_MS = 50


class Scene:
    """A worker, its group and its owner."""

    def __init__(
        self,
        app: worker.App,
        http: HttpStage | None = None,
        *,
        drain_ms: int = 5_000,
        ends_gather_ms: int = 5,
        **desk: int,
    ) -> None:
        self.source = MemorySource()
        self.owner = MemoryOwner()
        self.stop = asyncio.Event()
        ports = WorkerPorts(sources={"default": self.source}, line=self.owner, boot_ms=boot_ms, http=http)
        limits = DeskSettings(**{"concurrency": 10, "prefetch": 10, "stop_grace_ms": 200, **desk})
        settings = WorkerSettings(desk=limits, drain_ms=drain_ms, ends_gather_ms=ends_gather_ms)
        self.runtime = Runtime(app, ports, settings, worker_id="w-1", inbox=3)

    def invite(self, *numbers: int, **members: object) -> None:
        self.source.add(
            *(invitation(number, **{"slot": 0, "heartbeat_ms": HEARTBEAT_MS, **members}) for number in numbers)  # type: ignore[arg-type]
        )

    async def end_of(self, number: int) -> End:
        await self.owner.until(lambda: run(number) in self.owner.ends)
        return self.owner.ends[run(number)]

    async def beats(self, number: int, count: int) -> None:
        """Wait for so many more heartbeats."""
        before = len(self.owner.beats)
        await self.owner.until(lambda: sum(each[0] == run(number) for each in self.owner.beats[before:]) >= count)

    def cancel(self, number: int) -> None:
        token = self.owner.tokens[run(number)]
        self.owner.say(Answer(worker="w-1", slot=0, cancels=[(run(number), token, "test")]))


def run(number: int) -> str:
    return f"job-{number}:20260301T000000Z"


@asynccontextmanager
async def working(scene: Scene) -> AsyncIterator[Scene]:
    task = asyncio.create_task(scene.runtime.run(scene.stop))
    try:
        yield scene
    finally:
        scene.stop.set()
        await task


async def test_an_end_waits_for_company_and_a_claim_does_not() -> None:
    app = worker.App()

    @app.handler("noop")
    async def noop() -> None: ...

    async with working(Scene(app, ends_gather_ms=600_000, concurrency=1, ahead_ms=0)) as scene:
        scene.invite(1, 2)
        await scene.end_of(1)
        frame = scene.owner.frames[-1][2]
        assert [run_id for run_id, _ in frame.claims] == [run(2)]
        assert [end.run_id for end in frame.ends] == [run(1)]
    assert run(2) in scene.owner.ends  # when the worker stops nothing waits


async def test_functions_and_coroutines_are_run_and_their_results_reported() -> None:
    app = worker.App()

    @app.handler("plain")
    def plain(payload: dict[str, int]) -> int:
        assert threading.current_thread().name.startswith("handler-")
        return payload["number"] + 1

    @app.handler("coroutine")
    async def coroutine(payload: dict[str, int]) -> int:
        await asyncio.sleep(0)
        assert threading.current_thread().name == "handlers"
        return payload["number"] + 2

    async with working(Scene(app)) as scene:
        scene.invite(1, handler="plain", payload={"number": 1})
        scene.invite(2, handler="coroutine", payload={"number": 2})
        assert bytes((await scene.end_of(1)).result) == b"2"
        assert bytes((await scene.end_of(2)).result) == b"4"
    assert sorted(scene.source.accepted) == [(0, 0), (0, 1)]
    assert scene.source.closed


async def test_a_claim_does_not_wait_for_the_tick() -> None:
    app = worker.App()
    app.handler("noop")(lambda: None)
    waits = []
    async with working(Scene(app)) as scene:
        for number in range(20):
            began = boot_ms()
            scene.invite(number)
            await scene.owner.until(lambda number=number: (run(number), 1) in scene.owner.claims)  # type: ignore[misc]
            waits.append(boot_ms() - began)
            await scene.end_of(number)
    assert min(waits) < TICK_MAX_MS / 3  # the gathering is 2 ms; the rest is a machine that does other things too


async def test_heartbeats_go_on_while_a_function_blocks_its_thread_and_a_coroutine_its_loop() -> None:
    app, release = worker.App(), threading.Event()

    @app.handler("thread")
    def thread() -> None:
        release.wait(30)

    @app.handler("blocking")
    async def blocking() -> None:
        release.wait(30)

    async with working(Scene(app)) as scene:
        scene.invite(1, handler="thread")
        scene.invite(2, handler="blocking")
        await scene.beats(1, 3)
        await scene.beats(2, 3)
        assert scene.owner.ends == {}
        release.set()
        assert (await scene.end_of(1)).outcome is Outcome.SUCCEEDED
        assert (await scene.end_of(2)).outcome is Outcome.SUCCEEDED


async def test_heartbeats_go_on_while_a_function_keeps_the_interpreter_busy() -> None:
    app, stop = worker.App(), threading.Event()

    @app.handler("busy")
    def busy() -> None:
        while not stop.is_set():
            sum(range(1_000))

    async with working(Scene(app)) as scene:
        scene.invite(1, handler="busy")
        await scene.beats(1, 3)
        stop.set()
        await scene.end_of(1)


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()], ids=repr
)
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_nothing_a_handler_raises_ends_the_worker(kind: str, error: BaseException) -> None:
    app = worker.App()

    @app.handler("plain")
    def plain() -> None:
        raise error

    @app.handler("coroutine")
    async def coroutine() -> None:
        raise error

    app.handler("noop")(lambda: "alive")
    async with working(Scene(app)) as scene:
        scene.invite(1, handler=kind)
        end = await scene.end_of(1)
        assert (end.outcome, str(end.error).split(":")[0]) == (Outcome.FAILED, type(error).__name__)
        scene.invite(2)
        assert bytes((await scene.end_of(2)).result) == b'"alive"'


async def test_a_coroutine_is_cancelled_at_its_timeout() -> None:
    app = worker.App()

    @app.handler("slow")
    async def slow() -> None:
        await asyncio.sleep(3_600)

    async with working(Scene(app)) as scene:
        scene.invite(1, handler="slow", timeout_ms=100)
        end = await scene.end_of(1)
        assert (end.outcome, end.error) == (Outcome.FAILED, "timed out after 0.1 s")
        assert scene.runtime.desk.busy == 0


async def test_a_coroutine_that_does_not_let_itself_be_cancelled_is_given_up() -> None:
    app, release = worker.App(), asyncio.Event()

    @app.handler("stubborn")
    async def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    async with working(Scene(app)) as scene:
        scene.invite(1, handler="stubborn", timeout_ms=100)
        assert "the task does not end" in str((await scene.end_of(1)).error)
        assert (scene.runtime.desk.busy, scene.runtime.desk.stuck) == (1, 1)
        release.set()


async def test_a_function_that_never_returns_costs_a_place_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    app, release = worker.App(), threading.Event()

    @app.handler("hanging")
    def hanging(ctx: worker.Context) -> bool:
        release.wait(30)
        return ctx.cancelled

    app.handler("noop")(lambda: None)
    with caplog.at_level(logging.ERROR, "noontide.worker"):
        async with working(Scene(app, concurrency=2)) as scene:
            scene.invite(1, handler="hanging", timeout_ms=100)
            end = await scene.end_of(1)
            assert (end.outcome, "the thread is still running" in str(end.error)) == (Outcome.FAILED, True)
            assert scene.runtime.desk.stuck == 1
            scene.invite(2, 3, 4)
            for number in (2, 3, 4):
                assert (await scene.end_of(number)).outcome is Outcome.SUCCEEDED
            release.set()
            scene.invite(5)
            await scene.end_of(5)
    assert "its place is lost until it returns" in caplog.text
    assert [end.run_id for end in scene.owner.every_end].count(run(1)) == 1


async def test_a_cancel_reaches_functions_and_coroutines() -> None:
    app, began = worker.App(), threading.Barrier(3)

    @app.handler("plain")
    def plain(ctx: worker.Context) -> None:
        began.wait(10)
        if ctx.wait_cancelled(10):
            raise worker.Cancelled

    @app.handler("coroutine")
    async def coroutine() -> None:
        await asyncio.to_thread(began.wait, 10)
        await asyncio.sleep(3_600)

    async with working(Scene(app)) as scene:
        scene.invite(1, handler="plain")
        scene.invite(2, handler="coroutine")
        await asyncio.to_thread(began.wait, 10)
        scene.cancel(1)
        scene.cancel(2)
        assert (await scene.end_of(1)).outcome is Outcome.CANCELLED
        assert (await scene.end_of(2)).outcome is Outcome.CANCELLED


async def test_progress_arrives() -> None:
    app, heard = worker.App(), threading.Event()

    @app.handler("steps")
    def steps(ctx: worker.Context) -> None:
        ctx.progress(0.5, "x" * 600)
        heard.wait(10)

    async with working(Scene(app)) as scene:
        scene.invite(1, handler="steps")
        await scene.owner.until(lambda: any(frame.progress for _, _, frame in scene.owner.frames))
        heard.set()
        await scene.end_of(1)
    (word,) = [word for _, _, frame in scene.owner.frames for word in frame.progress]
    assert word == (run(1), scene.owner.tokens[run(1)], 0.5, "x" * 500)


async def test_a_run_of_a_handler_that_is_not_here_goes_back() -> None:
    app = worker.App()
    app.handler("noop")(lambda: None)
    async with working(Scene(app, stranger_ms=50)) as scene:
        scene.invite(1, handler="elsewhere")
        scene.invite(2, handler=None)
        assert (await scene.end_of(1)).outcome is Outcome.HANDED_BACK
        assert (await scene.end_of(2)).outcome is Outcome.HANDED_BACK


# --- HTTP


class Courier:
    """An executor that answers, or waits until it is told to stop."""

    def __init__(self) -> None:
        self.closed = False
        self.began = threading.Event()

    async def execute(self, invitation: Invitation, token: int, *, cancelled: asyncio.Event) -> End:
        end = End(run_id=invitation.run_id, token=token, outcome=Outcome.SUCCEEDED, status=204)
        if invitation.payload == b'"fault"':
            raise RuntimeError("a fault")
        if invitation.payload == b'"wait"':
            self.began.set()
            await cancelled.wait()
            end.outcome = Outcome.CANCELLED
        return end

    async def aclose(self) -> None:
        self.closed = True


async def test_http_targets_go_to_their_executor() -> None:
    courier = Courier()
    async with working(Scene(worker.App(), courier)) as scene:
        scene.invite(1, handler=None)
        end = await scene.end_of(1)
        assert (end.outcome, end.status) == (Outcome.SUCCEEDED, 204)
        scene.invite(2, handler=None, payload="wait")
        await asyncio.to_thread(courier.began.wait, 10)
        scene.cancel(2)
        assert (await scene.end_of(2)).outcome is Outcome.CANCELLED
        scene.invite(3, handler=None, payload="fault")
        assert (await scene.end_of(3)).error == "RuntimeError: a fault"
    assert courier.closed


async def test_an_http_target_that_is_late_is_given_up_at_its_timeout() -> None:
    class Deaf(Courier):
        async def execute(self, invitation: Invitation, token: int, *, cancelled: asyncio.Event) -> End:
            await asyncio.sleep(3_600)
            raise AssertionError

    async with working(Scene(worker.App(), Deaf())) as scene:
        scene.invite(1, handler=None, timeout_ms=100)
        end = await scene.end_of(1)
        assert (end.outcome, end.error) == (Outcome.FAILED, "timed out after 0.1 s")


async def test_at_shutdown_a_request_goes_back_instead_of_being_cancelled() -> None:
    courier = Courier()
    async with working(Scene(worker.App(), courier, drain_ms=50)) as scene:
        scene.invite(1, handler=None, payload="wait")
        await asyncio.to_thread(courier.began.wait, 10)
    assert scene.owner.ends[run(1)].outcome is Outcome.HANDED_BACK


# --- the way out


async def test_a_stop_waits_for_what_runs_and_says_its_end() -> None:
    app, release = worker.App(), threading.Event()
    began = threading.Event()

    @app.handler("slow")
    def slow() -> str:
        began.set()
        release.wait(30)
        return "done"

    async with working(Scene(app, concurrency=1, prefetch=2)) as scene:
        scene.invite(1, 2, 3, handler="slow")
        await asyncio.to_thread(began.wait, 10)
        scene.stop.set()
        await scene.beats(1, 2)
        assert scene.owner.ends == {}
        release.set()
    assert bytes(scene.owner.ends[run(1)].result) == b'"done"'
    assert scene.source.released == [(0, 1), (0, 2)]


async def test_after_the_drain_time_coroutines_go_back_and_threads_are_left_behind() -> None:
    app, release, began = worker.App(), threading.Event(), threading.Barrier(3)

    @app.handler("plain")
    def plain() -> None:
        began.wait(10)
        release.wait(30)

    @app.handler("coroutine")
    async def coroutine() -> None:
        await asyncio.to_thread(began.wait, 10)
        await asyncio.sleep(3_600)

    async with working(Scene(app, drain_ms=100)) as scene:
        scene.invite(1, handler="plain")
        scene.invite(2, handler="coroutine")
        await asyncio.to_thread(began.wait, 10)
    release.set()
    assert scene.owner.ends[run(2)].outcome is Outcome.HANDED_BACK
    left = scene.owner.ends[run(1)]
    assert (left.outcome, "worker stopped" in str(left.error)) == (Outcome.FAILED, True)


async def test_what_is_granted_during_the_drain_goes_back() -> None:
    app = worker.App()
    app.handler("noop")(lambda: pytest.fail("started while stopping"))
    scene = Scene(app)
    scene.owner.grants = False
    async with working(scene):
        scene.invite(1)
        await scene.owner.until(lambda: (run(1), 1) in scene.owner.claims)
        scene.stop.set()
        await asyncio.sleep(0)
        (_, slot, frame), *_ = scene.owner.frames
        scene.owner.grant(frame, slot)
    assert scene.owner.ends[run(1)].outcome is Outcome.HANDED_BACK


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_is_over_does_not_wait_for_the_collector(is_async: bool) -> None:
    """Whatever pointed at itself would be freed by the thousand, while heartbeats and claims wait."""
    app = worker.App()

    def plain(ctx: worker.Context) -> None: ...

    async def coroutine(ctx: worker.Context) -> None: ...

    app.handler("noop")(coroutine if is_async else plain)
    async with working(Scene(app)) as scene:
        gc.collect()
        gc.disable()
        try:
            scene.invite(*range(2_000))
            await scene.owner.until(lambda: scene.owner.ended >= 2_000)
            left = [each for each in gc.get_objects() if isinstance(each, Attempt | Holding)]
        finally:
            gc.enable()
    assert len(left) < 500  # some are still in somebody's hands


async def test_many_runs_each_start_once_and_end_once() -> None:
    app, counts = worker.App(), dict[str, int]()

    @app.handler("noop")
    async def noop(ctx: worker.Context) -> None:
        counts[ctx.run_id] = counts.get(ctx.run_id, 0) + 1

    total = 5_000
    async with working(Scene(app, concurrency=500, prefetch=500)) as scene:
        began = time.perf_counter()
        scene.source.add(*(invitation(number) for number in range(total)))
        await scene.owner.until(lambda: scene.owner.ended >= total)
        print(f"{total / (time.perf_counter() - began):,.0f} runs/s")
    assert len(counts) == total
    assert set(counts.values()) == {1}
    assert scene.owner.ended == total
