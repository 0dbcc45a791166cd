"""From a request on a topic to the record on the target: one scheduler process, real Kafka, nothing in between."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.installation import Installation, Seen
from tests.integration.scheduler_process import SchedulerProcess

PAYLOAD = b'{ "b" : 1.10, "a":[1,2,  3], "u":"\\u00fc \xc3\xbc", "zero":-0.0, "e":1E+2 }'
"""What no parse and print would give back: spaces, a zero with a sign, two spellings of one letter."""


class Running(NamedTuple):
    """An installation with a scheduler that owns all of it, a registered topic and one that is not."""

    installation: Installation
    orders: str
    loose: str


@pytest.fixture(scope="module")
def running(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data = tmp_path_factory.mktemp("delivery") / "data"
    with Installation.create(kafka.bootstrap, f"t{uuid.uuid4().hex[:8]}.") as installation:
        orders = installation.create_target("orders", partitions=3)
        loose = installation.create_topic("loose", partitions=3)
        with SchedulerProcess(installation, data) as scheduler:
            scheduler.start().until_owner()
            yield Running(installation, orders, loose)
            assert "unexpected; replaying" not in scheduler.log
            assert scheduler.terminate() == 0


def at(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


def due_of(record: Seen) -> datetime:
    return at((record.headers["noontide-due"] or b"").decode())


def appended(record: Seen) -> datetime:
    return datetime.fromtimestamp(record.at_ms / 1000, UTC)


def soon(seconds: float) -> datetime:
    """A time from now, on a whole millisecond."""
    return datetime.fromtimestamp(round(time.time() + seconds, 3), UTC)


def java_partition(installation: Installation, topic: str, key: bytes) -> int:
    """Where Java's default partitioner puts a key, as librdkafka computes it."""
    partitioned = installation.create_topic(f"{topic}-{uuid.uuid4().hex[:6]}", partitions=3)
    return installation.produce(partitioned, key=key, value=b"")[0]


def test_one_off_to_a_registered_topic(running: Running) -> None:
    installation, orders, _ = running
    due = soon(1.5)
    head = orjson.dumps({"run_at": due.isoformat(), "target": {"topic": {"name": orders, "key": "customer-7"}}})
    installation.request("once", head[:-1] + b',"payload":' + PAYLOAD + b"}")
    (record,) = installation.log(orders).of_key("customer-7")
    run_id = f"once:{due:%Y%m%dT%H%M%S}.{due.microsecond // 1000:03d}Z".replace(".000Z", "Z")
    assert record.value == PAYLOAD
    assert record.partition == java_partition(installation, "keys", b"customer-7")
    assert record.headers["noontide-run"] == record.headers["ce_id"] == run_id.encode()
    assert record.headers["noontide-job"] == b"once"
    assert record.headers["noontide-attempt"] == b"1"
    assert due_of(record) == due
    assert due <= appended(record) <= due + timedelta(seconds=2)
    execution = installation.log("executions").of_key(run_id)[0].document
    assert execution["state"] == "succeeded"
    assert execution["target"] == f"kafka://{orders}"
    assert at(execution["due"]) == due <= at(execution["ended_at"])
    cursors = installation.log("state").of_key("cursor/once", 2)
    assert [each.document["state"] for each in cursors] == ["active", "completed"]


def test_one_off_to_a_topic_that_is_not_registered(running: Running) -> None:
    installation, _, loose = running
    due = soon(1.0)
    installation.request("loose-once", {"run_at": due.isoformat(), "target": f"kafka://{loose}", "payload": {"n": 1}})
    (record,) = installation.log(loose).of_key("loose-once")
    assert record.value == b'{"n":1}'
    assert record.partition == java_partition(installation, "keys", b"loose-once")
    execution = installation.log("executions").of_key(record.run_id)[0].document
    assert execution["state"] == "succeeded"
    assert execution["token"] == 1
    assert appended(record) >= due


def test_interval_counts_from_its_anchor(running: Running) -> None:
    installation, orders, _ = running
    anchor = soon(0.25)
    document = {"schedule": {"every": "PT1S", "anchor": anchor.isoformat()}, "timing": "exact", "max_runs": 3}
    installation.request("interval", {**document, "target": f"kafka://{orders}"})
    records = installation.log(orders).of_key("interval", 3)
    first = due_of(records[0])
    assert (first - anchor) % timedelta(seconds=1) == timedelta()
    assert [due_of(each) for each in records] == [first + timedelta(seconds=number) for number in range(3)]
    assert all(due_of(each) <= appended(each) for each in records)
    for record in records:
        assert [each.document["state"] for each in installation.log("executions").of_key(record.run_id)] == [
            "succeeded"
        ]
    until_completed(installation, "interval")


def until_completed(installation: Installation, job_id: str) -> None:
    installation.log("state").until(lambda _: cursor_state(installation, job_id) == "completed")


def cursor_state(installation: Installation, job_id: str) -> object:
    cursor = installation.log("state").latest(f"cursor/{job_id}")
    return None if cursor is None else cursor.document["state"]


def test_cron_runs_every_second_and_as_previewed(running: Running, tmp_path: Path) -> None:
    installation, orders, _ = running
    document = {"schedule": {"cron": "*/1 * * * * *", "seconds": True}, "timing": {"window": "PT0.5S"}}
    definition = {"id": "ticks", **document, "target": f"kafka://{orders}"}
    partition, offset = installation.request("ticks", {**definition, "max_runs": 3})
    (request,) = [
        each
        for each in installation.log("requests.public").of_key("ticks")
        if (each.partition, each.offset) == (partition, offset)
    ]
    records = installation.log(orders).of_key("ticks", 3)
    previewed = preview(definition, after=appended(request), folder=tmp_path)
    assert [due_of(each) for each in records] == [at(each["due"]) for each in previewed]
    starts = [at(each.get("start_after", each["due"])) for each in previewed]
    assert all(
        start <= appended(each) < start + timedelta(seconds=1) for start, each in zip(starts, records, strict=True)
    )
    for record, start in zip(records, starts, strict=True):
        execution = installation.log("executions").of_key(record.run_id)[0].document
        assert at(execution.get("start_after", execution["due"])) == start


def preview(definition: dict[str, object], *, after: datetime, folder: Path) -> list[dict[str, object]]:
    """The first three times that `noontide preview` shows for a definition."""
    path = folder / "definition.json"
    path.write_bytes(orjson.dumps(definition))
    command = [sys.executable, "-c", "from noontide.apps.cli.main import main; main()", "preview", "--json"]
    arguments = ["--file", str(path), "--count", "3", "--after", after.isoformat()]
    shown = subprocess.run([*command, *arguments], check=True, capture_output=True).stdout
    times = orjson.loads(shown)["times"]
    assert isinstance(times, list)
    return times


def test_after_completion_counts_from_the_end_of_the_run(running: Running) -> None:
    installation, _, loose = running
    document = {"schedule": {"after_completion": "PT1S"}, "timing": "exact", "target": f"kafka://{loose}"}
    installation.request("chain", {**document, "max_runs": 3})
    records = installation.log(loose).of_key("chain", 3)
    executions = [installation.log("executions").of_key(each.run_id)[0].document for each in records]
    ended = [at(each["ended_at"]) for each in executions]
    assert [due_of(each) for each in records[1:]] == [each + timedelta(seconds=1) for each in ended[:2]]


def test_each_time_has_one_execution_and_one_record(running: Running) -> None:
    """Two jobs on one topic, for a while: what is on the topic and what is in the history are the same runs."""
    installation, orders, _ = running
    for number in range(2):
        document = {"schedule": {"every": "PT1S"}, "timing": "exact", "target": f"kafka://{orders}"}
        installation.request(f"pair-{number}", {**document, "max_runs": 2})
    records = [each for number in range(2) for each in installation.log(orders).of_key(f"pair-{number}", 2)]
    for number in range(2):
        until_completed(installation, f"pair-{number}")
    runs = [each.run_id for each in records]
    assert len(set(runs)) == len(runs) == 4
    history = installation.log("executions").until(
        lambda found: set(runs) <= {each.document["run_id"] for each in found}
    )
    closed = [str(each.document["run_id"]) for each in history if each.document["job_id"] in ("pair-0", "pair-1")]
    assert sorted(closed) == sorted(runs)


def test_a_deleted_and_created_again_id_starts_anew(running: Running) -> None:
    """mis-06: nothing that fell between the delete and the new definition is caught up; the run id says which life."""
    installation, orders, _ = running
    document = {"schedule": {"every": "PT1S"}, "timing": "exact", "misfire": "run_all", "target": f"kafka://{orders}"}
    installation.request("reborn", document)
    installation.log(orders).of_key("reborn", 1)
    installation.request("reborn", None)
    installation.log("jobs").until(lambda found: any(each.key == b"reborn" and each.value is None for each in found))
    before = installation.log(orders).count("reborn")
    time.sleep(1.1)  # occurrences of the old life, had it gone on
    partition, offset = installation.request("reborn", document)
    second = installation.log("requests.public").until(
        lambda found: any((each.partition, each.offset) == (partition, offset) for each in found)
    )
    accepted = next(appended(each) for each in second if (each.partition, each.offset) == (partition, offset))
    records = installation.log(orders).of_key("reborn", before + 2)[before:]
    assert all(each.run_id.endswith("~2") for each in records)
    assert due_of(records[0]) == accepted + timedelta(seconds=1)
    installation.request("reborn", None)


def test_pause_resume_and_a_trigger_while_paused(running: Running) -> None:
    """mis-04: times that pass while paused are never missed; a trigger runs and leaves the schedule alone."""
    installation, orders, _ = running
    document = {"schedule": {"every": "PT1S"}, "timing": "exact", "misfire": "run_all", "target": f"kafka://{orders}"}
    installation.request("pausing", {**document, "paused": True, "note": "not yet"})
    installation.log("state").until(lambda _: cursor_state(installation, "pausing") == "paused")
    _, offset = installation.request("pausing", {"payload": {"by": "hand"}}, kind="trigger")
    (triggered,) = installation.log(orders).of_key("pausing")
    assert triggered.run_id == f"pausing:m{offset}-public"
    assert triggered.value == b'{"by":"hand"}'
    cursor = installation.log("state").latest("cursor/pausing")
    assert cursor is not None
    assert cursor.document["state"] == "paused"
    assert cursor.document["n"] == 0
    partition, offset = installation.request("pausing", document)
    resumed = installation.log("requests.public").until(
        lambda found: any((each.partition, each.offset) == (partition, offset) for each in found)
    )
    resumed_at = next(appended(each) for each in resumed if (each.partition, each.offset) == (partition, offset))
    first = installation.log(orders).of_key("pausing", 2)[1]
    assert resumed_at < due_of(first) <= resumed_at + timedelta(seconds=1)
    installation.request("pausing", None)


def test_an_update_meets_a_claim(running: Running) -> None:
    """rac-09: a record carries a payload of the time at which it fell due; a request may be read some ms after that."""
    installation, orders, _ = running
    base = {"schedule": {"cron": "* * * * * *", "seconds": True}, "timing": "exact", "target": f"kafka://{orders}"}
    for version in range(60):
        installation.request("updated", {**base, "payload": version})
        time.sleep(0.04)
    installation.request("updated", None)
    installation.log("jobs").until(lambda found: any(each.key == b"updated" and each.value is None for each in found))
    starts = [each.at_ms for each in installation.log("requests.public").of_key("updated", 61)][:60]
    records = installation.log(orders).of_key("updated", 2)
    assert len({each.run_id for each in records}) == len(records)
    seconds = [due_of(each) for each in records]
    assert seconds == [seconds[0] + timedelta(seconds=number) for number in range(len(seconds))]
    for record in records:
        due_ms = round(due_of(record).timestamp() * 1000)
        newest = sum(start <= due_ms for start in starts) - 1
        oldest = sum(start <= due_ms - 500 for start in starts) - 1
        assert max(0, oldest) <= orjson.loads(record.value or b"") <= newest
