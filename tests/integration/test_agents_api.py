"""`/v1/stats` and `/v1/alerts` on a real broker: what the agents have written, for those who may see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import httpx
import orjson
from tests.conftest import RunningKafka
from tests.integration.installation import Installation
from tests.kafka_scene import until

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.agents.ledger import Ended, Ledger, ended_of
from noontide.apps.agents_board import AgentsBoard
from noontide.apps.api.app import create_app
from noontide.apps.api_wiring import ApiOptions, open_app
from noontide.core.access import Principal, Role
from noontide.core.instants import format_instant
from noontide.records.agents_state import WINDOWS, Window, minute_of

JOBS = {"sync": "billing", "report": "billing", "mail": "orders"}
SINCE_MS = 1_772_409_600_000


def ended(offset: int, job: str, state: str, *, late_ms: int) -> Ended:
    now = format_instant(wall_now_ms())
    execution = {
        "run_id": f"{job}:{offset}", "job_id": job, "tenant": JOBS[job], "due": now, "ended_at": now, "state": state,
        "late_ms": late_ms,
    }  # fmt: skip
    found = ended_of(0, offset, orjson.dumps(execution))
    assert found is not None
    return found


def count(installation: Installation, batch: Iterable[Ended]) -> None:
    """What agents write when they have read some executions."""
    rows = Ledger().count(list(batch), now_minute=minute_of(wall_now_ms()))
    for key, row in rows.items():
        installation.produce(installation.name("agents-state"), key=key.encode(), value=orjson.dumps(row), partition=0)


def say(installation: Installation, alert_id: str, **fields: object) -> None:
    alert = {"alert_id": alert_id, "kind": "dead", "job_id": "sync", "tenant": "billing", "at": 1, **fields}
    installation.produce(installation.name("alerts"), key=b"sync", value=orjson.dumps(alert))


async def asked(app: Any, path: str) -> dict[str, Any]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_what_the_agents_say_is_served(kafka: RunningKafka, prefix: str) -> None:
    with Installation.create(kafka.bootstrap, prefix) as installation:
        say(installation, "before")
        options = ApiOptions(
            connection=KafkaConnection(kafka.bootstrap), layout=installation.layout, secret="a secret of the test"
        )
        async with open_app(options) as app:
            board = app.state.services.agents
            assert isinstance(board, AgentsBoard)
            empty = await asked(app, "/v1/stats")
            assert (empty["items"], empty["as_of"]) == ([], None)
            count(
                installation,
                [ended(0, "sync", "dead", late_ms=3), ended(1, "sync", "succeeded", late_ms=700),
                 ended(2, "report", "succeeded", late_ms=1), ended(3, "mail", "skipped", late_ms=0)],
            )  # fmt: skip
            say(installation, "before")
            say(installation, "later", kind="nothing_ran", job_id="mail", tenant="orders", last_ms=SINCE_MS)
            outcome = orjson.dumps({"at": 1, "partition": 0, "channels": {"oncall": None, "chat": "HTTP 404"}})
            installation.produce(installation.name("agents-told"), key=b"before", value=outcome)
            await until(lambda: board.alerts.told("before") is not None)
            await until(lambda: len(list(board.alerts.latest())) == 2)
            await until(lambda: len(board.usage.tenants(*_day(), seen=None)) == 2)
            await _check_usage(app)
            await _check_alerts(app)
            await _check_access(app)


def _day() -> tuple[Window, int]:
    return WINDOWS[2], minute_of(wall_now_ms())


async def _check_usage(app: Any) -> None:
    billing, orders = (await asked(app, "/v1/stats?window=24h"))["items"]
    assert billing | {"late": 0, "ran": 0} == {
        "tenant": "billing", "runs": 3, "succeeded": 2, "dead": 1, "cancelled": 0, "decided": 0, "leases_lost": 0,
        "failure_rate": 1 / 3, "late": 0, "ran": 0,
    }  # fmt: skip
    assert billing["late"] == {"p50_ms": 5, "p90_ms": 1_000, "p99_ms": 1_000}
    assert billing["ran"] == {"p50_ms": None, "p90_ms": None, "p99_ms": None}
    assert (orders["runs"], orders["decided"], orders["failure_rate"]) == (0, 1, None)
    by: Callable[[str], Any] = lambda order: asked(app, f"/v1/stats/jobs?window=24h&by={order}&limit=2")  # noqa: E731
    assert [each["job_id"] for each in (await by("dead"))["items"]] == ["sync", "mail"]
    assert [each["job_id"] for each in (await by("runs"))["items"]] == ["sync", "report"]
    rows = app.state.services.agents.usage.job_rows(*_day(), "report")
    assert len(rows) == 1
    assert app.state.services.agents.usage.job_rows(*_day(), "repo") == []


async def _check_alerts(app: Any) -> None:
    newest, oldest = (await asked(app, "/v1/alerts"))["items"]
    assert (newest["alert_id"], newest["since"], newest["told"]) == ("later", "2026-03-02T00:00:00.000Z", None)
    assert (oldest["alert_id"], oldest["told"]) == ("before", {"oncall": None, "chat": "HTTP 404"})
    assert oldest["at"] > "2026"
    for query, ids in (
        ("kind=dead", ["before"]), ("job=mail", ["later"]), ("tenant=orders", ["later"]), ("limit=1", ["later"]),
        ("kind=late", []),
    ):  # fmt: skip
        assert [each["alert_id"] for each in (await asked(app, f"/v1/alerts?{query}"))["items"]] == ids


async def _check_access(app: Any) -> None:
    """Somebody of one tenant sees what is theirs."""

    async def authenticate(_request: Any) -> Principal:
        return Principal(name="x", role=Role.VIEWER, tenants=frozenset({"orders"}))

    theirs = create_app(replace(app.state.services), settings=app.state.settings, authenticate=authenticate)
    assert [each["tenant"] for each in (await asked(theirs, "/v1/stats"))["items"]] == ["orders"]
    assert [each["job_id"] for each in (await asked(theirs, "/v1/stats/jobs"))["items"]] == ["mail"]
    assert [each["alert_id"] for each in (await asked(theirs, "/v1/alerts"))["items"]] == ["later"]
    assert (await asked(theirs, "/v1/alerts?tenant=billing"))["items"] == []
