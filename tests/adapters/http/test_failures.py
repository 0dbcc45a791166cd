"""Servers that break off, hang, drip and lie: every attempt is one request, ends in time, and says why it failed."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.adapters.http.conftest import Attempt
from tests.adapters.http.servers import Received, Script, Wire, always, invitation, serving

from noontide.adapters.http import HttpExecutor
from noontide.records.worker_events import End, Outcome

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


async def close_unanswered(wire: Wire, _: Received) -> None:
    wire.writer.close()


async def reset(wire: Wire, _: Received) -> None:
    wire.reset()


async def hang(_wire: Wire, _: Received) -> None:
    await asyncio.get_running_loop().create_future()


async def drip(wire: Wire, _: Received) -> None:
    await wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while True:
        await wire.say(b"x")
        await asyncio.sleep(0.02)


async def drip_head(wire: Wire, _: Received) -> None:
    await wire.say(b"HTTP/1.1 200 OK\r\n")
    while True:
        await wire.say(b"x: y\r\n")
        await asyncio.sleep(0.02)


async def break_off(wire: Wire, _: Received) -> None:
    await wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this")
    wire.writer.close()


async def babble(wire: Wire, _: Received) -> None:
    await wire.say(b"\x00\x01SSH-2.0-OpenSSH\r\n\r\n")


async def bad_chunk(wire: Wire, _: Received) -> None:
    await wire.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nx\r\n")


async def two_lengths(wire: Wire, _: Received) -> None:
    await wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx")


async def endless_head(wire: Wire, _: Received) -> None:
    await wire.say(b"HTTP/1.1 200 OK\r\n")
    while True:
        await wire.say(b"x: " + b"y" * 60_000 + b"\r\n")


def first_answer_then(script: Script) -> Script:
    """Answer the first request of the test, do this with all others."""
    seen: list[Received] = []

    async def chosen(wire: Wire, request: Received) -> None:
        seen.append(request)
        await (always()(wire, request) if len(seen) == 1 else script(wire, request))

    return chosen


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("script", [close_unanswered, reset])
async def test_a_kept_connection_that_dies_is_not_replaced_in_silence(
    attempt: Attempt, method: str, script: Script
) -> None:
    """Case htp-15: one request for each attempt, for every method."""
    async with serving(first_answer_then(script)) as server:
        assert (await attempt(invitation(server.url()))).outcome is Outcome.SUCCEEDED
        end = await attempt(invitation(server.url(), method=method))
    assert (server.connections, len(server.requests)) == (1, 2)
    assert (end.outcome, end.permanent, end.status) == (Outcome.FAILED, False, None)
    assert "ended before a response; the target may have acted" in (end.error or "")


async def test_the_retry_has_the_same_key(attempt: Attempt) -> None:
    """Case htp-16: closed after the body was read; the owner's next attempt is recognised by its key."""
    async with serving(close_unanswered) as server:
        for number in (1, 2):
            end = await attempt(invitation(server.url(), attempt=number))
            assert (end.outcome, end.permanent) == (Outcome.FAILED, False)
            assert "the target may have acted" in (end.error or "")
    assert [request.headers["noontide-attempt"] for request in server.requests] == ["1", "2"]
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used(
    executor: HttpExecutor, attempt: Attempt
) -> None:
    closed = asyncio.Event()

    async def answer_and_close(wire: Wire, _: Received) -> None:
        await wire.answer()
        wire.writer.close()
        await wire.writer.wait_closed()
        closed.set()

    async with serving(answer_and_close) as server:
        for _ in range(3):
            closed.clear()
            assert (await attempt(invitation(server.url()))).outcome is Outcome.SUCCEEDED
            await closed.wait()
            await asyncio.sleep(0)
    assert executor.counters().connections_opened == 3


async def test_an_answer_nobody_asked_for_is_not_taken_for_the_next(attempt: Attempt) -> None:
    """Whether it comes together with the right one or a moment later."""
    said = asyncio.Event()

    async def answer_twice(wire: Wire, request: Received) -> None:
        stale = b"HTTP/1.1 500 Stale\r\ncontent-length: 5\r\n\r\nstale"
        right = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1"
        if request.path == "/together":
            await wire.say(right + stale)
        else:
            await wire.say(right)
            await asyncio.sleep(0.01)  # long enough to be a packet of its own
            await wire.say(stale)
        said.set()

    async with serving(answer_twice) as server:
        for path in ("/together", "/together", "/later", "/later"):
            end = await attempt(invitation(server.url(path)))
            assert (end.outcome, bytes(end.result)) == (Outcome.SUCCEEDED, b"1")
            await said.wait()
            said.clear()


@pytest.mark.parametrize(
    "script,said",
    [
        (close_unanswered, "ended before a response; the target may have acted"),
        (reset, "ended before a response; the target may have acted"),
        (break_off, "ended within the body of HTTP 200; the target may have acted"),
        (bad_chunk, "ended within the body of HTTP 200; the target may have acted"),
        (babble, "ended before a response; the target may have acted"),
        (two_lengths, "ended before a response; the target may have acted"),
        (endless_head, "ended before a response; the target may have acted"),
    ],
)
async def test_broken_answers_are_failures_that_may_pass(attempt: Attempt, script: Script, said: str) -> None:
    async with serving(script) as server:
        end = await attempt(invitation(server.url()))
    assert (end.outcome, end.permanent) == (Outcome.FAILED, False)
    assert end.error == f"the connection to 127.0.0.1:{server.port} {said}"


@pytest.mark.parametrize(
    "script,said",
    [
        (hang, "no response; the target may have acted"),
        (drip_head, "no response; the target may have acted"),
        (drip, "the body of HTTP 200 did not end; the target may have acted"),
    ],
)
async def test_the_time_limit_is_over_everything(attempt: Attempt, script: Script, said: str) -> None:
    """Case htp-13, at a hundredth of its length: bytes that keep coming do not extend the time."""
    async with serving(script) as server:
        end = await attempt(invitation(server.url(), timeout_ms=300))
    assert (end.outcome, end.permanent) == (Outcome.FAILED, False)
    assert end.error == f"timed out after 0.3 s: {said}"
    assert 300 <= end.duration_ms < 5_000


async def test_a_connection_that_timed_out_is_not_used_again(executor: HttpExecutor, attempt: Attempt) -> None:
    async with serving(first_answer_then(hang)) as server:
        await attempt(invitation(server.url()))
        await attempt(invitation(server.url(), timeout_ms=100))
        await attempt(invitation(server.url(), timeout_ms=100))
    assert executor.counters().connections_opened == 2


async def test_nobody_listening_is_a_failure_that_may_pass(attempt: Attempt) -> None:
    async with serving(always()) as server:
        url = server.url()
    end = await attempt(invitation(url))
    assert (end.outcome, end.permanent) == (Outcome.FAILED, False)
    assert re.match(r"no connection to 127\.0\.0\.1:\d+: ", end.error or "")


async def test_waiting_for_a_connection_counts_and_is_said(executor: HttpExecutor, attempt: Attempt) -> None:
    stop, full = asyncio.Event(), asyncio.Event()

    async def fill(_wire: Wire, _: Received) -> None:
        if len(server.requests) == 100:
            full.set()
        await asyncio.get_running_loop().create_future()

    async with serving(fill) as server:
        invited = invitation(server.url(), timeout_ms=60_000)
        holding = [asyncio.create_task(executor.execute(invited, 1, cancelled=stop)) for _ in range(100)]
        await full.wait()
        end = await attempt(invitation(server.url(), timeout_ms=100))
        stop.set()
        held = await asyncio.gather(*holding)
    assert end.error == "timed out after 0.1 s: no connection was free or could be made"
    assert {each.outcome for each in held} == {Outcome.CANCELLED}
    assert len(server.requests) == 100


async def test_cancelling_drops_the_request(executor: HttpExecutor) -> None:
    arrived, stop = asyncio.Event(), asyncio.Event()
    gone = asyncio.Event()

    async def wait(wire: Wire, _: Received) -> None:
        arrived.set()
        await wire.reader.read()
        gone.set()

    async with serving(wait) as server:
        running = asyncio.create_task(executor.execute(invitation(server.url()), 7, cancelled=stop))
        await arrived.wait()
        stop.set()
        end = await running
        await gone.wait()
    assert (end.outcome, end.token) == (Outcome.CANCELLED, 7)
    assert end.error == "cancelled: no response; the target may have acted"
    assert executor.counters().in_flight == 0


async def test_what_is_cancelled_before_it_starts_is_not_sent(executor: HttpExecutor) -> None:
    stop = asyncio.Event()
    stop.set()
    async with serving(always()) as server:
        end: End = await executor.execute(invitation(server.url()), 7, cancelled=stop)
    assert (end.outcome, end.error, server.requests) == (Outcome.CANCELLED, "cancelled: not sent", [])


async def test_giving_up_the_task_leaves_nothing_behind(executor: HttpExecutor) -> None:
    arrived = asyncio.Event()

    async def wait(wire: Wire, _: Received) -> None:
        arrived.set()
        await wire.reader.read()

    async with serving(wait) as server:
        running = asyncio.create_task(executor.execute(invitation(server.url()), 7, cancelled=asyncio.Event()))
        await arrived.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert executor.counters().in_flight == 0
