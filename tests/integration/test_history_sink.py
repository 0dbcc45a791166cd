"""`executions` into PostgreSQL through a real Kafka Connect: rows, redeliveries, bad records, a database that goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import cast

import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.installation import Installation, eventually
from tests.postgres_scene import open_folder

from noontide.adapters.kafka.connect_rest import ConnectRest
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded.connect import EmbeddedConnect
from noontide.adapters.kafka.group_lag import group_lag
from noontide.adapters.postgres.history import PostgresHistory
from noontide.adapters.postgres.table import add_days, history_database
from noontide.apps.dev_history import DevHistory
from noontide.apps.history_keeper import HistoryKeeper
from noontide.apps.sink_step_over import StepOver
from noontide.core.dst import LAST_MS
from noontide.core.instants import FIRST_MS, format_instant
from noontide.ports.history import ExecutionFilter
from noontide.records.history import CONNECTOR_NAME
from noontide.records.topics import load_catalogue

ROWS_WITHIN_S = 30
SINKS = Path(__file__).parents[2] / "topics" / "sinks"


class Sink:
    """One installation whose executions go to a database."""

    def __init__(self, installation: Installation, history: DevHistory) -> None:
        self.installation = installation
        self.history = history

    def write(self, value: dict[str, object] | bytes, *, key: str = "k", partition: int = 0) -> None:
        raw = value if isinstance(value, bytes) else orjson.dumps(value)
        self.installation.produce(
            self.installation.name("executions"), key=key.encode(), value=raw, partition=partition
        )

    def rows(self) -> dict[str, tuple[object, ...]]:
        """State and reason by run id."""
        with history_database(self.history.url) as database:
            found = database.execute("SELECT run_id, state, reason FROM noontide.executions").fetchall()
        return {str(run): tuple(rest) for run, *rest in found}

    def until(self, run_id: str, row: tuple[object, ...]) -> None:
        eventually(lambda: self.rows().get(run_id) == row, within_s=ROWS_WITHIN_S, what=f"{run_id} is {row}")


@pytest.fixture(scope="module")
def sink(kafka: RunningKafka) -> Iterator[Sink]:
    with (
        Installation.create(kafka.bootstrap, "tsink.") as installation,
        open_folder() as folder,
        DevHistory(folder, bootstrap=kafka.bootstrap, prefix="tsink.") as history,
    ):
        yield Sink(installation, history)


@pytest.mark.slow
def test_the_sink_that_writes_files(kafka: RunningKafka, tmp_path: Path) -> None:
    """`topics/sinks/executions-files.json` as it is shipped, but for the topic's prefix: a line per record."""
    shipped = orjson.loads((SINKS / "executions-files.json").read_bytes())
    config = {**shipped["config"], "topics": "fsink.executions"}
    lines = tmp_path / "executions.jsonl"
    written = [orjson.dumps(execution(f"f{number}", state="succeeded")) for number in range(3)]
    with (
        Installation.create(kafka.bootstrap, "fsink.") as installation,
        EmbeddedConnect(
            tmp_path / "connect", kafka.bootstrap, {shipped["name"]: config}, {"NOONTIDE_HISTORY_FILE": str(lines)}
        ),
    ):
        for value in written:
            installation.produce(installation.name("executions"), key=b"k", value=value, partition=0)
        eventually(lambda: lines.exists() and len(lines.read_bytes().splitlines()) == 3, what="three lines")
        assert lines.read_bytes().splitlines() == written


def execution(run_id: str, **fields: object) -> dict[str, object]:
    return {
        "run_id": run_id,
        "job_id": "a",
        "tenant": "t",
        "due": "2026-03-02T01:30:00.000Z",
        "state": "dead",
        **fields,
    }


async def test_the_examples_of_the_topic_come_back_as_they_were_written(sink: Sink) -> None:
    examples = [dict(cast("dict[str, object]", example.value)) for example in load_catalogue()["executions"].examples]
    for value in examples:
        sink.write(value, key=str(value["run_id"]))
    await asyncio.to_thread(lambda: sink.until("sync:20260302T014500Z", ("dead", "max_attempts: HTTP 503")))
    async with PostgresHistory(sink.history.url) as history:
        for value in examples:
            found = dict(await history.find(str(value["run_id"])) or {})
            if "attempts" in value:
                assert orjson.loads(str(found.pop("attempts"))) == orjson.loads(str(value.pop("attempts")))
            assert found == value
        page = await history.page(ExecutionFilter(tenants=("billing",)), limit=10)
        assert [item["job_id"] for item in page] == ["nightly-report"]


def test_a_run_that_ends_again_is_one_row(sink: Sink) -> None:
    for state in ("dead", "dead", "succeeded"):
        sink.write(execution("again", state=state))
    sink.until("again", ("succeeded", None))


NO_DUE = orjson.dumps({"run_id": "no-due", "job_id": "a", "tenant": "t", "state": "dead"})


@pytest.mark.parametrize(
    "key, raw", [("odd", b"{not json"), ("list", b"[]"), ("number", b'{"run_id": 7}'), ("no-due", NO_DUE)]
)
def test_what_is_no_execution_is_set_aside_and_the_others_arrive(sink: Sink, key: str, raw: bytes) -> None:
    sink.write(raw, key=key)
    sink.write(execution(f"after-{key}"))
    sink.until(f"after-{key}", ("dead", None))
    (aside,) = sink.installation.log("sink-errors").of_key(key)
    assert aside.value == raw
    assert aside.headers["__connect.errors.topic"] == b"tsink.executions"
    assert b"DataException" in (aside.headers["__connect.errors.exception.stacktrace"] or b"")


def test_the_sink_gets_past_what_the_database_refuses(sink: Sink) -> None:
    refused: dict[str, dict[str, object]] = {
        "word": {"claimed_at": "soon"}, "thirtieth": {"due": "2026-02-30T00:00:00.000Z"},
        "nul": {"reason": "a\0b"}, "broken": {"attempts": "{"},
    }  # fmt: skip
    for key, fields in refused.items():
        sink.write(execution(f"before-{key}", reason="fine", attempts="[1]"))
        sink.write(execution(key, **fields), key=key)
        sink.write(execution(f"behind-{key}"), partition=1)
    rest = ConnectRest(sink.history.connect_url)
    connection = KafkaConnection(sink.installation.bootstrap)
    keeper = HistoryKeeper(
        url=sink.history.url, connect_url=sink.history.connect_url,
        step_over=StepOver(connection=connection, prefix="tsink.", url=sink.history.url),
    )  # fmt: skip
    for _ in range(2):  # the first time it is only started again
        eventually(lambda: bool((state := rest.state(CONNECTOR_NAME)) and state.failed), what="the task fails")
        keeper.keep_sink()
    sink.write(execution("last"))
    for key, fields in refused.items():
        sink.until(f"before-{key}", ("dead", "fine"))
        sink.until(f"behind-{key}", ("dead", None))
        (aside,) = (each for each in sink.installation.log("sink-errors").of_key(key))
        assert orjson.loads(aside.value or b"") == execution(key, **fields)
        assert aside.headers["noontide.reason"]
    sink.until("last", ("dead", None))
    assert refused.keys().isdisjoint(sink.rows())


async def test_the_first_and_the_last_instant_that_a_job_may_have_arrive(sink: Sink) -> None:
    ends = {"earliest": FIRST_MS, "latest": LAST_MS}
    for run_id, instant_ms in ends.items():
        sink.write(execution(run_id, due=format_instant(instant_ms), ended_at=format_instant(instant_ms)))
    await asyncio.to_thread(lambda: sink.until("latest", ("dead", None)))
    async with PostgresHistory(sink.history.url) as history:
        for run_id, instant_ms in ends.items():
            found = dict(await history.find(run_id) or {})
            assert (found["due"], found["ended_at"]) == (format_instant(instant_ms), format_instant(instant_ms))


def test_a_field_of_a_newer_version_does_no_harm(sink: Sink) -> None:
    sink.write(execution("newer", weather="rain", reason="timeout"))
    sink.until("newer", ("dead", "timeout"))


def test_a_day_that_is_added_late_takes_over_what_the_sink_wrote(sink: Sink) -> None:
    sink.write(execution("far", due="2026-05-01T00:00:00.000Z"))
    sink.until("far", ("dead", None))
    with history_database(sink.history.url) as database:
        add_days(database, date(2026, 5, 1), 1)
    sink.write(execution("far", due="2026-05-01T00:00:00.000Z", state="succeeded"))
    sink.until("far", ("succeeded", None))


def test_a_database_that_goes_away_loses_nothing_and_the_sink_is_started_again(sink: Sink) -> None:
    sink.write(execution("before-outage"))
    sink.until("before-outage", ("dead", None))
    sink.history.postgres.kill()
    for number in range(20):
        sink.write(execution(f"outage-{number}"))
    rest = ConnectRest(sink.history.connect_url)

    def failed() -> bool:
        state = rest.state(CONNECTOR_NAME)
        return state is not None and state.failed

    eventually(failed, within_s=ROWS_WITHIN_S, what="the task fails")
    sink.history.postgres.start()
    keeper = HistoryKeeper(url=sink.history.url, connect_url=sink.history.connect_url)
    keeper.keep_sink()
    sink.until("outage-19", ("dead", None))
    assert {f"outage-{number}" for number in range(20)} <= sink.rows().keys()
    state = rest.state(CONNECTOR_NAME)
    assert state is not None
    assert state.running
    lag = group_lag(
        KafkaConnection(sink.installation.bootstrap),
        group=f"connect-{CONNECTOR_NAME}",
        topic=sink.installation.name("executions"),
    )
    assert lag is not None
