"""Completion from outside: tokens that fit one grant of one run, and an endpoint that trusts nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.http.conftest import LOCAL
from tests.adapters.http.servers import Received, Wire, always, invitation, serving

from noontide.adapters.http import HttpExecutor, check_completion_token, completion_app, make_completion_token
from noontide.adapters.http.completion import BODY_MAX_BYTES
from noontide.records.worker_events import RESULT_MAX_BYTES, End, Outcome

KEY = b"a key of the deployment, 32 bytes"
RUN = "a.b~c@d:20261224T180000Z~2"


class Desk:
    """Takes completions, or fails as told."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.ends: list[End] = []
        self.failure = failure

    async def complete(self, end: End) -> None:
        if self.failure is not None:
            raise self.failure
        self.ends.append(end)


def path(run_id: str = RUN, *, token: str | None = None) -> str:
    return f"/v1/runs/{run_id}/complete?token={make_completion_token(KEY, run_id, 7) if token is None else token}"


async def call(desk: Desk, url: str, body: bytes = b'{"outcome": "succeeded"}', method: str = "POST") -> httpx.Response:
    transport = httpx.ASGITransport(completion_app(desk.complete, key=KEY))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return await client.request(method, url, content=body)


@given(run_id=st.text("abcXYZ019._~:@-", min_size=1, max_size=50), token=st.integers(0, 2**62))
def test_a_token_speaks_for_one_grant_of_one_run(run_id: str, token: int) -> None:
    text = make_completion_token(KEY, run_id, token)
    assert check_completion_token(KEY, run_id, text) == token
    assert check_completion_token(KEY, run_id + "x", text) is None
    assert check_completion_token(KEY + b"x", run_id, text) is None
    assert check_completion_token(KEY, run_id, f"{token + 1}.{text.partition('.')[2]}") is None


@pytest.mark.parametrize(
    "text", ["", ".", "7", "7.", "x.y", "7." + "A" * 43, "-7." + "A" * 43, "7." + "é" * 43, "٧." + "A" * 43]
)
def test_other_texts_are_no_tokens(text: str) -> None:
    assert check_completion_token(KEY, RUN, text) is None


def test_short_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        make_completion_token(b"short", RUN, 7)
    assert make_completion_token(b"x" * 16, RUN, 7)


async def test_a_success_with_its_result() -> None:
    desk = Desk()
    answer = await call(desk, path(), b'{"outcome": "succeeded", "result": {"n": 1.50}}')
    assert (answer.status_code, answer.json()) == (202, {"run_id": RUN, "outcome": "succeeded"})
    (end,) = desk.ends
    assert (end.run_id, end.token, end.outcome, bytes(end.result)) == (RUN, 7, Outcome.SUCCEEDED, b'{"n": 1.50}')


async def test_a_failure_with_its_reason() -> None:
    desk = Desk()
    body = b'{"outcome": "failed", "error": "%s", "permanent": true, "retry_after_ms": 5}' % (b"x" * 3_000)
    assert (await call(desk, path(), body)).status_code == 202
    await call(desk, path(), b'{"outcome": "failed"}')
    assert [(end.outcome, end.permanent, end.retry_after_ms) for end in desk.ends] == [
        (Outcome.FAILED, True, 5),
        (Outcome.FAILED, False, None),
    ]
    assert [end.error for end in desk.ends] == ["x" * 2_000, "the target said that it failed"]


@pytest.mark.parametrize(
    "url,method,body,status",
    [
        (path(token=""), "POST", b"{}", 403),
        (path(token=make_completion_token(KEY, "other", 7)), "POST", b"{}", 403),
        (path() + "&token=x", "POST", b"{}", 403),
        ("/v1/runs/x/complete", "POST", b"{}", 403),
        (path(), "GET", b"", 405),
        ("/v1/runs", "POST", b"{}", 404),
        ("/v1/runs/a/b/complete", "POST", b"{}", 404),
        (path(), "POST", b"", 422),
        (path(), "POST", b"\xff", 422),
        (path(), "POST", b'{"outcome": "open"}', 422),
        (path(), "POST", b'{"outcome": "succeeded", "token": 8}', 422),
        (path(), "POST", b'{"outcome": "failed", "retry_after_ms": -1}', 422),
        (path(), "POST", b'{"outcome": "failed", "error": 5}', 422),
        (path(), "POST", b"[" * 5_000, 422),
        (path(), "POST", b" " * (BODY_MAX_BYTES + 1), 413),
        (path(), "POST", b'{"outcome": "succeeded", "result": "%s"}' % (b"x" * (RESULT_MAX_BYTES - 1)), 413),
    ],
)
async def test_what_is_wrong_is_said(url: str, method: str, body: bytes, status: int) -> None:
    desk = Desk()
    answer = await call(desk, url, body, method)
    problem = answer.json()
    assert (answer.status_code, problem["status"], desk.ends) == (status, status, [])
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["title"]
    assert problem["detail"]


async def test_the_largest_result_passes() -> None:
    desk = Desk()
    answer = await call(desk, path(), b'{"outcome": "succeeded", "result": "%s"}' % (b"x" * (RESULT_MAX_BYTES - 2)))
    assert (answer.status_code, len(bytes(desk.ends[0].result))) == (202, RESULT_MAX_BYTES)


async def test_what_could_not_be_stored_is_to_be_sent_again() -> None:
    for failure in (TimeoutError(), ConnectionRefusedError()):
        answer = await call(Desk(failure), path())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_a_target_completes_with_the_url_it_was_given() -> None:
    """From 202 to completed: what the executor sends is what the endpoint accepts."""
    desk = Desk()
    settings = replace(LOCAL, callback_url="https://noontide.example.com/")
    executor = HttpExecutor(settings, callback_key=KEY)
    async with serving(always("202 Accepted", headers="noontide-async: true\r\n")) as server:
        invited = invitation(server.url())._replace(run_id=RUN)
        end = await executor.execute(invited, 7, cancelled=asyncio.Event())
    await executor.aclose()
    callback = urlsplit(server.requests[0].headers["noontide-callback"])
    assert (end.outcome, callback.scheme, callback.netloc) == (Outcome.OPEN, "https", "noontide.example.com")
    assert (await call(desk, f"{callback.path}?{callback.query}")).status_code == 202
    assert [(each.run_id, each.token) for each in desk.ends] == [(RUN, 7)]


async def test_without_an_address_or_a_key_nobody_is_told_to_call() -> None:
    for settings, key in ((LOCAL, KEY), (replace(LOCAL, callback_url="https://x.example"), None)):
        executor = HttpExecutor(settings, callback_key=key)
        async with serving(always()) as server:
            await executor.execute(invitation(server.url()), 7, cancelled=asyncio.Event())
        await executor.aclose()
        assert "noontide-callback" not in server.requests[0].headers


async def test_the_callback_does_not_follow_a_redirect_to_another_host() -> None:
    executor = HttpExecutor(replace(LOCAL, callback_url="https://x.example"), callback_key=KEY)

    async def away(wire: Wire, _: Received) -> None:
        await wire.answer("302 Found", headers=f"location: {other.url()}\r\n")

    async with serving(always()) as other, serving(away) as server:
        end = await executor.execute(invitation(server.url(), method="GET"), 7, cancelled=asyncio.Event())
    await executor.aclose()
    assert end.outcome is Outcome.SUCCEEDED
    assert "noontide-callback" in server.requests[0].headers
    assert "noontide-callback" not in other.requests[0].headers
