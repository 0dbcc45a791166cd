"""What becomes of answers: statuses, Retry-After, bodies of every size and kind."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace

import httpcore
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.http.conftest import LOCAL, Attempt
from tests.adapters.http.servers import Received, Wire, always, invitation, serving

from noontide.adapters.http import HttpExecutor
from noontide.adapters.http.capture import Captured, Unpacking, capture, keep
from noontide.adapters.http.connections import Exchange
from noontide.adapters.http.verdicts import retry_after
from noontide.records.worker_events import RESULT_MAX_BYTES, End, Outcome

HOUR_MS = 3_600_000
JSON = "content-type: application/json\r\n"


async def answered(attempt: Attempt, status: str, *, body: bytes = b"", headers: str = "") -> End:
    async with serving(always(status, body=body, headers=headers)) as server:
        end = await attempt(invitation(server.url()))
        assert len(server.requests) == 1
    return end


@pytest.mark.parametrize("status", [200, 201, 202, 204, 205, 206, 299])
async def test_2xx_succeeds(attempt: Attempt, status: int) -> None:
    end = await answered(attempt, f"{status} Fine")
    assert (end.outcome, end.status, end.error, bytes(end.result)) == (Outcome.SUCCEEDED, status, None, b"")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 599])
async def test_what_may_pass_is_tried_again(attempt: Attempt, status: int) -> None:
    end = await answered(attempt, f"{status} Busy", headers="retry-after: 120\r\n")
    assert (end.outcome, end.permanent, end.status) == (Outcome.FAILED, False, status)
    assert (end.error, end.retry_after_ms) == (f"HTTP {status}", 120_000)


@pytest.mark.parametrize("status", [300, 304, 305, 400, 401, 403, 404, 407, 409, 410, 422, 424, 426, 428, 499, 600])
async def test_what_will_not_pass_is_not(attempt: Attempt, status: int) -> None:
    end = await answered(attempt, f"{status} No", headers="retry-after: 120\r\n")
    assert (end.outcome, end.permanent, end.error) == (Outcome.FAILED, True, f"HTTP {status}")
    assert end.retry_after_ms is None


async def test_202_with_the_header_leaves_the_run_open(attempt: Attempt) -> None:
    opened = await answered(attempt, "202 Accepted", headers="noontide-async: True\r\n")
    plain = await answered(attempt, "202 Accepted", headers="noontide-async: false\r\n")
    other = await answered(attempt, "200 OK", headers="noontide-async: true\r\n")
    assert [end.outcome for end in (opened, plain, other)] == [Outcome.OPEN, Outcome.SUCCEEDED, Outcome.SUCCEEDED]


@pytest.mark.parametrize(
    "value,date,wait_ms",
    [
        ("120", None, 120_000),
        ("0", None, 0),
        ("3600", None, HOUR_MS),
        ("3601", None, HOUR_MS),
        ("999999999999999999", None, HOUR_MS),
        ("Thu, 01 Jan 1970 00:02:00 GMT", None, 20_000),
        ("Thu, 01 Jan 1970 00:02:00 GMT", "Thu, 01 Jan 1970 00:01:59 GMT", 1_000),
        ("Thu, 01 Jan 1970 00:00:00 GMT", None, 0),
        ("Fri, 02 Jan 1970 00:00:00 GMT", None, HOUR_MS),
        (" 5 ", None, 5_000),
        ("-5", None, None),
        ("1.5", None, None),
        ("٣", None, None),
        ("soon", None, None),
        ("Thu, 01 Jan 1970 00:02:00", None, None),
        ("", None, None),
        (None, None, None),
        ("9" * 5_000, None, None),
    ],
)
def test_retry_after(value: str | None, date: str | None, wait_ms: int | None) -> None:
    """Cases htp-01 and htp-04: obeyed, and capped."""
    assert retry_after(value, date=date, now_ms=100_000, max_ms=HOUR_MS) == wait_ms


async def test_the_cap_is_a_setting() -> None:
    executor = HttpExecutor(replace(LOCAL, retry_after_max_ms=600_000))
    async with serving(always("429 Slow", headers="retry-after: 1800\r\n")) as server:
        end = await executor.execute(invitation(server.url()), 1, cancelled=asyncio.Event())
    await executor.aclose()
    assert end.retry_after_ms == 600_000


@pytest.mark.parametrize(
    "body,kind,result",
    [
        (b'{"a": 1.50, "b": [null]}', "application/json", b'{"a": 1.50, "b": [null]}'),
        (b'{"a":1}', "application/problem+json; charset=utf-8", b'{"a":1}'),
        (b"12345678901234567890123", "application/json", b"12345678901234567890123"),
        (b"{broken", "application/json", b'"{broken"'),
        (b"NaN", "application/json", b'"NaN"'),
        (b"42", "text/plain", b'"42"'),
        (b'hello "you"\n', "text/plain", b'"hello \\"you\\"\\n"'),
        (b"\xff\xfe", "text/plain", '"��"'.encode()),
        (b"\x00", "application/octet-stream", b'"\\u0000"'),
    ],
)
async def test_json_stays_and_text_becomes_a_string(attempt: Attempt, body: bytes, kind: str, result: bytes) -> None:
    end = await answered(attempt, "200 OK", body=body, headers=f"content-type: {kind}\r\n")
    assert (bytes(end.result), end.truncated) == (result, False)


async def test_json_without_a_type_is_json(attempt: Attempt) -> None:
    assert bytes((await answered(attempt, "200 OK", body=b'{"a":1}')).result) == b'{"a":1}'


@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_the_limit_is_exact(attempt: Attempt, beyond: int) -> None:
    body = b'"' + b"x" * (RESULT_MAX_BYTES - 2 + beyond) + b'"'
    end = await answered(attempt, "200 OK", body=body, headers=JSON)
    assert end.truncated == (beyond > 0)
    assert len(bytes(end.result)) <= RESULT_MAX_BYTES
    assert (bytes(end.result) == body) == (beyond <= 0)


async def test_text_is_cut_between_characters(attempt: Attempt) -> None:
    """Case htp-14."""
    end = await answered(attempt, "200 OK", body=("é" * 40_000).encode(), headers="content-type: text/plain\r\n")
    text = orjson.loads(bytes(end.result))
    assert end.truncated
    assert text == "é" * len(text)
    assert RESULT_MAX_BYTES - 3 <= len(bytes(end.result)) <= RESULT_MAX_BYTES


@given(
    data=st.binary(max_size=300),
    max_bytes=st.integers(2, 200),
    kind=st.sampled_from(("", "application/json", "text/plain")),
    complete=st.booleans(),
)
def test_whatever_comes_is_kept_as_json_in_the_limit(data: bytes, max_bytes: int, kind: str, complete: bool) -> None:
    kept = keep(Captured(data, complete), content_type=kind, max_bytes=max_bytes)
    if raw := bytes(kept.result):
        orjson.loads(raw)
        assert len(raw) <= max_bytes
    assert kept.truncated or complete


async def test_a_failed_answer_keeps_a_short_excerpt(attempt: Attempt) -> None:
    end = await answered(attempt, "503 Busy", body=b"x" * 50_000)
    assert (end.error, end.truncated) == ("HTTP 503", True)
    assert 1_000 < len(bytes(end.result)) <= 1_024


async def test_a_huge_response_costs_neither_memory_nor_time(attempt: Attempt) -> None:
    sent = 0

    async def gigabyte(wire: Wire, _: Received) -> None:
        nonlocal sent
        await wire.say(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
        for _chunk in range(1024):
            await wire.say(b"x" * 1_048_576)
            sent += 1

    tracemalloc.start()
    async with serving(gigabyte) as server:
        end = await attempt(invitation(server.url()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (end.outcome, end.truncated) == (Outcome.SUCCEEDED, True)
    assert sent < 64
    assert peak < 16 * 1_048_576


@pytest.mark.parametrize("coding", ["gzip", "deflate", "x-gzip"])
async def test_packed_bodies_are_unpacked_although_nobody_asked(attempt: Attempt, coding: str) -> None:
    body = zlib.compress(b'{"a":1}') if coding == "deflate" else gzip.compress(b'{"a":1}')
    end = await answered(attempt, "200 OK", body=body, headers=f"{JSON}content-encoding: {coding}\r\n")
    assert (bytes(end.result), end.truncated) == (b'{"a":1}', False)


async def test_a_bomb_does_not_go_off() -> None:
    bomb = zlib.compress(b"\0" * 200_000_000, 9)
    response = httpcore.Response(200, content=bomb)
    tracemalloc.start()
    got = await capture(Exchange(response), coding="gzip", max_bytes=65_536)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(got.data), got.complete) == (65_536, False)
    assert peak < 4_000_000


async def test_a_stream_that_unpacks_to_nothing_is_not_read_for_ever() -> None:
    packer = zlib.compressobj()
    empty_blocks = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH) * 1 + b"\x00\x00\x00\xff\xff" * 1_000_000

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(empty_blocks), 8192):
            yield empty_blocks[start : start + 8192]

    got = await capture(Exchange(httpcore.Response(200, content=chunks())), coding="deflate", max_bytes=65_536)
    assert (got.data, got.complete) == (b"", False)


@pytest.mark.parametrize("coding,body", [("br", b"\x0b\x02\x80"), ("gzip", b"no gzip at all"), ("gzip, br", b"x")])
async def test_what_cannot_be_unpacked_is_left_out(attempt: Attempt, coding: str, body: bytes) -> None:
    end = await answered(attempt, "200 OK", body=body, headers=f"content-encoding: {coding}\r\n")
    assert (end.outcome, bytes(end.result), end.truncated) == (Outcome.SUCCEEDED, b"", True)


def test_half_of_a_packed_body_is_not_the_whole() -> None:
    unpack = Unpacking("gzip")
    packed = gzip.compress(b"x" * 1000)
    assert unpack.some(packed[:-4], 2000) == b"x" * 1000
    assert not unpack.finished()
