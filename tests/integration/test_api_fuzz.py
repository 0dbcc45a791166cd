"""As tests/apps/api/test_fuzz.py, through the real broker and a real scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation
from tests.integration.scheduler_process import SchedulerProcess

FILE = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
EXAMPLES = 5
SETTINGS = ("lease_wait_max_ms=50", "lease_idle_ms=1", "live_length_ms=50")
OPTIONS = ("--no-access", *(word for each in SETTINGS for word in ("--setting", each)))
pytestmark = pytest.mark.slow
schema = schemathesis.openapi.from_path(FILE)


@schemathesis.serializer("application/x-ndjson")
def _lines(_context: object, value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else repr(value).encode()


@pytest.fixture(scope="module")
def api(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("fuzz")
    with (
        Installation.create(kafka.bootstrap, "api-fuzz.") as installation,
        SchedulerProcess(installation, folder / "data", secret=SECRET) as scheduler,
        ApiProcess(installation, folder, options=OPTIONS) as process,
    ):
        scheduler.start().until_owner()
        yield process
        assert "Traceback" not in process.log
        assert "Traceback" not in scheduler.log


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_nothing_is_a_fault_of_ours(case: schemathesis.Case[Any], api: ApiProcess) -> None:
    answer = case.call(base_url=api.url)
    busy = answer.status_code == 503 and "retry-after" in answer.headers  # as documented
    assert answer.status_code < 500 or busy, f"{case.as_curl_command()}\n{answer.text}"
    if answer.status_code >= 400:
        assert answer.headers["content-type"][0] == "application/problem+json"
