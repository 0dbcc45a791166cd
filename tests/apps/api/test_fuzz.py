"""What the OpenAPI document allows, and what it does not, sent over HTTP to an API over slots in memory.

Nothing may be a fault of ours. The same on a real broker is in tests/integration/test_api_fuzz.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from tests.apps.api.memory_api import MemoryApi

from noontide.apps.api.app import create_app
from noontide.apps.serving import serving
from noontide.records.topics import Layout
from noontide.testing.memory_stage import MemoryStage

FILE = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"
EXAMPLES = 6
schema = schemathesis.openapi.from_path(FILE)


@schemathesis.serializer("application/x-ndjson")
def _lines(_context: object, value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else repr(value).encode()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """An API on a thread."""
    found: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        async with MemoryStage(layout=Layout(partitions=4, slots=2)) as stage:
            stage.register("orders")
            api = MemoryApi(stage)
            app = create_app(api.services, settings=replace(api.settings, live_length_ms=50))
            async with serving(app, "127.0.0.1", 0, drain_s=1) as served:
                stop = asyncio.Event()
                found.set_result((served, asyncio.get_running_loop(), stop))
                await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    served, loop, stop = found.result(30)
    yield served
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
def test_nothing_is_a_fault_of_ours(case: schemathesis.Case[Any], url: str) -> None:
    answer = case.call(base_url=url, timeout=20)
    nobody_to_lease_from = answer.status_code == 503 and case.path == "/v1/workers/lease"
    assert answer.status_code < 500 or nobody_to_lease_from, f"{case.as_curl_command()}\n{answer.text}"
    if answer.status_code >= 400:
        assert answer.headers["content-type"][0] == "application/problem+json"
