"""Many connections at once to a real server: each is answered, by 200 or by 503 with when to come again."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter

import pytest

from noontide.apps.api.app import create_app
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.apps.serving import serving
from noontide.records.config import ConfigView
from noontide.records.topics import Layout

BODY = b'{"schedule": "0 6 * * *"}'
HEAD = b"POST /v1/preview?count=1 HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\nConnection: close\r\n"
REQUEST = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY)
GROWTH_MAX_MIB = 1_000


@pytest.mark.parametrize("crowd", [400, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_a_crowd_is_answered_and_costs_a_bounded_memory(crowd: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    crowd = min(crowd, (most - 500) // 2)  # both ends of each connection are in this process
    settings = ApiSettings(concurrency_max=crowd // 4, body_wait_ms=120_000)
    app = create_app(Services(layout=Layout(), config=ConfigView), settings=settings)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    others_are_refused, answers = asyncio.Event(), Counter[int]()

    async def one(port: int) -> None:
        """Bodies go out when everybody for whom there is no room has been told so, by their heads alone."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        reading, refused = asyncio.create_task(reader.read()), asyncio.create_task(others_are_refused.wait())
        await asyncio.wait({reading, refused}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            writer.write(BODY)
        answer = await reading
        answers[int(answer.split(b" ", 2)[1])] += 1
        if answers[503] == crowd - crowd // 4:
            others_are_refused.set()
        await refused
        assert b" 503 " not in answer[:20] or b"retry-after: 2" in answer
        writer.close()

    async with serving(app, "127.0.0.1", 0, drain_s=1) as url:
        port = int(url.rpartition(":")[2])
        async with asyncio.timeout(120):
            await asyncio.gather(*(one(port) for _ in range(crowd)))
    assert answers == {200: crowd // 4, 503: crowd - crowd // 4}
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    assert grown_mib < GROWTH_MAX_MIB
