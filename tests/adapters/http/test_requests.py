"""What a target gets: headers, body, method, and what the counters say."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.adapters.http.conftest import Attempt
from tests.adapters.http.servers import always, invitation, serving

from noontide.adapters.http import HttpExecutor
from noontide.core.tracing import attempt_context
from noontide.records.worker_events import End, Outcome


async def test_headers_say_which_run_this_is(attempt: Attempt) -> None:
    async with serving(always()) as server:
        end = await attempt(invitation(server.url("/hook?x=1"), attempt=3))
    (got,) = server.requests
    assert end.outcome is Outcome.SUCCEEDED
    assert (got.method, got.path, got.body) == ("POST", "/hook?x=1", b'{"n":1}')
    ours = ("noontide", "idempotency", "content", "host")
    assert {name: value for name, value in got.headers.items() if name.startswith(ours)} == {
        "host": f"127.0.0.1:{server.port}",
        "idempotency-key": "nightly:20261224T180000Z",
        "noontide-job": "nightly",
        "noontide-run": "nightly:20261224T180000Z",
        "noontide-attempt": "3",
        "noontide-due": "2026-12-24T18:00:00.000Z",
        "noontide-token": "7",
        "content-type": "application/json",
        "content-length": "7",
    }  # fmt: skip
    assert got.headers["user-agent"].startswith("noontide/")
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", got.headers["traceparent"])


def test_attempts_of_a_run_share_a_trace_and_have_spans_of_their_own() -> None:
    first, second, other = attempt_context(b"r", 1), attempt_context(b"r", 2), attempt_context(b"s", 1)
    assert first[:35] == second[:35] != other[:35]
    assert first != second


async def test_the_targets_headers_come_after_ours_and_replace_only_what_they_may(attempt: Attempt) -> None:
    headers = {
        "X-Mine": "a",
        "Content-Type": "text/x",
        "user-agent": "me",
        "Idempotency-Key": "no",
        "noontide-Run": "no",
    }
    async with serving(always()) as server:
        await attempt(invitation(server.url(), headers=headers))
    (got,) = server.requests
    assert got.headers["x-mine"] == "a"
    assert got.headers["content-type"] == "text/x"
    assert got.headers["user-agent"] == "me"
    assert got.headers["idempotency-key"] == "nightly:20261224T180000Z"
    assert got.names.index("X-Mine") > got.names.index("traceparent")
    assert len(got.names) == len({name.lower() for name in got.names})


@pytest.mark.parametrize(
    "method,payload,sent",
    [
        ("POST", b"null", b"null"),
        ("PUT", b'{ "kept":  "as is", "n": 1e999 }', b'{ "kept":  "as is", "n": 1e999 }'),
        ("PATCH", '"é"'.encode(), '"é"'.encode()),
        ("DELETE", b"null", None),
        ("DELETE", b"[1]", b"[1]"),
        ("GET", b"[1]", None),
        ("HEAD", b"[1]", None),
    ],
)
async def test_the_body_is_the_payload_byte_for_byte(
    attempt: Attempt, method: str, payload: bytes, sent: bytes | None
) -> None:
    async with serving(always()) as server:
        end = await attempt(invitation(server.url(), method=method, payload=payload))
    (got,) = server.requests
    assert (end.outcome, got.method, got.body) == (Outcome.SUCCEEDED, method, sent or b"")
    assert ("content-length" in got.headers) == ("content-type" in got.headers) == (sent is not None)


async def test_connections_are_used_again(executor: HttpExecutor, attempt: Attempt) -> None:
    async with serving(always()) as server:
        for _ in range(5):
            await attempt(invitation(server.url()))
    counters = executor.counters()
    assert (server.connections, counters.connections_opened) == (1, 1)
    assert (counters.requests, counters.attempts, counters.in_flight) == (5, 5, 0)


async def test_many_at_once_take_no_more_connections_than_allowed(executor: HttpExecutor, attempt: Attempt) -> None:
    async with serving(always(body=b"{}")) as server:
        ends = await asyncio.gather(*(attempt(invitation(server.url())) for _ in range(300)))
    assert {end.outcome for end in ends} == {Outcome.SUCCEEDED}
    assert server.connections <= 100
    assert len(server.requests) == executor.counters().requests == 300


@pytest.mark.parametrize(
    "target,said",
    [
        ({"handler": "x"}, "http of the target is no object"),
        ({"http": {"url": "ftp://x/"}}, "no http or https URL"),
        ({"http": {"url": "http://a b/"}}, "no http or https URL"),
        ({"http": {"url": "http://user:pass@example.com/"}}, "carries credentials"),
        ({"http": {"url": "http://x/", "method": "TRACE"}}, "method TRACE"),
        ({"http": {"url": "http://x/", "auth": {"digest": {}}}}, "auth has none of the known forms"),
        ({"http": {"url": "http://x/", "sign": True}}, "sign must be"),
    ],
)
async def test_targets_that_cannot_be_read_fail_for_good(
    attempt: Attempt, target: dict[str, object], said: str
) -> None:
    end: End = await attempt(invitation("http://x/")._replace(target=target, timeout_ms=200))
    assert (end.outcome, end.permanent) == (Outcome.FAILED, True)
    assert said in (end.error or "")
