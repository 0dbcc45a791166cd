"""What strangers write on `requests.*`: each bad record is refused with its place and a reason, and holds up nothing.

Rows kaf-02, kaf-04, kaf-05, kaf-12, clk-13, clk-15, clk-16, clk-17, cron-*, tz-*, ids-*, pay-* of the shared cases, as
raw records. Each test ends with a valid record behind the bad ones in the same partition, which must be carried out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka as ck
import orjson
import pytest

from noontide.records.topics import Layout
from tests.conftest import RunningKafka
from tests.integration.scheduler_process import Installation, SchedulerProcess, Seen, eventually

CASES = Path(__file__).parent.parent / "cases"
PAST = "2026-01-01T00:00:00Z"


class Running(NamedTuple):
    """An installation with a scheduler that owns all of it, and a registered topic."""

    installation: Installation
    orders: str
    scheduler: SchedulerProcess

    def once(self, **fields: object) -> dict[str, object]:
        """A valid definition that is due at once."""
        return {"run_at": PAST, "target": f"kafka://{self.orders}", **fields}


@pytest.fixture(scope="module")
def running(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    prefix = f"t{uuid.uuid4().hex[:8]}."
    with Installation.create(kafka.bootstrap, prefix, domains=("orders", "hung")) as installation:
        orders = installation.create_target("orders")
        installation.configure("domain/orders", {"tenants": ["shop"]})
        installation.configure("domain/hung", {"tenants": "*"})
        with SchedulerProcess(installation, tmp_path_factory.mktemp("bad") / "data") as scheduler:
            scheduler.start().until_owner()
            yield Running(installation, orders, scheduler)
            assert "unexpected" not in scheduler.log
            assert "Traceback" not in scheduler.log
            assert scheduler.terminate() == 0


def id_in(layout: Layout, partition: int, *, start: str) -> str:
    """An id that belongs to a partition."""
    return next(name for number in range(1_000) if layout.partition_of(name := f"{start}-{number}") == partition)


def rejections(installation: Installation, places: list[tuple[int, int]], *, domain: str = "public") -> list[Seen]:
    """The rejections of these (partition, offset) pairs, in this order; waits for them."""
    topic = f"requests.{domain}"

    def by_place(found: list[Seen]) -> dict[tuple[int, int], Seen]:
        origins = [(each.document["origin"], each) for each in found]
        return {(origin["partition"], origin["offset"]): each for origin, each in origins if origin["topic"] == topic}  # type: ignore[index]

    found = installation.log("rejected").until(
        lambda all_: set(places) <= by_place(all_).keys(), what=f"rejections of {places}"
    )
    placed = by_place(found)
    return [placed[place] for place in places]


def check_alive(running: Running, partition: int) -> None:
    """A valid request behind everything else in the partition is carried out."""
    installation = running.installation
    job_id = id_in(installation.layout, partition, start=f"alive-{uuid.uuid4().hex[:6]}")
    installation.request(job_id, running.once())
    installation.log(running.orders).of_key(job_id, within_s=10)


BAD_VALUES = {
    "not UTF-8": bytes.fromhex("fffe00"),
    "an opening brace": b"{",
    "a list": b"[]",
    "a string": b'"a"',
    "a JSON null": b"null",
    "BOM and an object": bytes.fromhex("efbbbf7b7d"),
    "schema-registry prefix": bytes.fromhex("00000000017b7d"),
    "an empty value": b"",
    "an empty object": b"{}",
    "a bare number": b"17",
    "deep nesting": b'{"payload":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "deep nesting, unclosed": b"[" * 100_000,
    "NaN": b'{"run_at":"2030-01-01T00:00:00Z","target":"kafka://a","payload":{"x":NaN}}',
    "a number beyond doubles": b'{"run_at":"2030-01-01T00:00:00Z","target":"kafka://a","payload":1e999}',
    "half a surrogate": b'{"run_at":"2030-01-01T00:00:00Z","target":"kafka://a","payload":"\\ud83d"}',
    "a million blanks": b" " * 1_000_000,
    "nearly what the topic takes": b'{"payload":"' + b"x" * 1_000_000 + b'"}',
}


def test_values_that_are_no_definitions(running: Running) -> None:
    installation, _, _ = running
    places = {
        name: installation.request(id_in(installation.layout, 3, start="bad"), value) for name, value in BAD_VALUES.items()
    }
    check_alive(running, 3)
    found = rejections(installation, list(places.values()))
    for (name, value), rejected in zip(BAD_VALUES.items(), found, strict=True):
        assert rejected.document["reason"], name
        assert rejected.document["size"] == len(value), name
        assert b64decode(str(rejected.document["excerpt"])) == value[:1024], name
        assert rejected.key == id_in(installation.layout, 3, start="bad").encode()


def test_keys_that_are_no_ids(running: Running) -> None:
    installation, _, _ = running
    keys = [None, b"", b"\xff\xfe", "日本語".encode(), "🚀".encode(), b"a\nb", b"..", b".", b" a ", b"my scan.v1"]
    keys += [b"%2e%2e", b"a#b", b"a?b", b"a+b", b'"test"', b"x" * 201, b"a\x00b", b"k" * 1_000_000]
    value = orjson.dumps(running.once())
    topic = installation.name("requests.public")
    places = [installation.produce(topic, key=key, value=value, partition=2) for key in keys]
    check_alive(running, 2)
    for key, rejected in zip(keys, rejections(installation, places), strict=True):
        assert str(rejected.document["reason"]).startswith("/key"), key
        assert rejected.key == (None if key is None else key[: len(rejected.key or b"")])


BAD_FIELDS: dict[str, dict[str, object]] = {
    "/schedule": {"run_at": None, "schedule": "61 * * * *"},
    "/schedule/cron": {"run_at": None, "schedule": {"cron": "0 0 30 2 *"}},
    "/schedule/every": {"run_at": None, "schedule": {"every": "PT0S"}},
    "/schedule/every ": {"run_at": None, "schedule": {"every": "P1M"}},
    "/schedule/every  ": {"run_at": None, "schedule": {"every": 5}},
    "/timezone": {"timezone": "Mars/Phobos"},
    "/timezone ": {"timezone": "../../etc/passwd"},
    "/timezone  ": {"timezone": "europe/BERLIN\0"},
    "/run_at": {"run_at": 1698566537},
    "/run_at ": {"run_at": "9999-99-99T00:00:00Z"},
    "/run_at  ": {"run_at": 1e30},
    "/run_at   ": {"run_at": "1698566537000"},
    "/target": {"target": "ftp://somewhere"},
    "/target/topic/name": {"target": "kafka://__consumer_offsets"},
    "/priority": {"priority": 10},
    "/misfire": {"misfire": "sometimes"},
    "/overlap": {"overlap": True},
    "/calendar": {"calendar": {"exclude": ["no-such-calendar"]}},
    "/id": {"id": "somebody-else"},
}


def test_definitions_with_a_bad_field(running: Running) -> None:
    installation, _, _ = running
    job_id = id_in(installation.layout, 4, start="field")
    places = []
    for fields in BAD_FIELDS.values():
        document = {name: value for name, value in running.once(**fields).items() if value is not None}
        places.append(installation.request(job_id, document))
    check_alive(running, 4)
    for pointer, rejected in zip(BAD_FIELDS, rejections(installation, places), strict=True):
        problems = rejected.document["problems"]
        assert isinstance(problems, list)
        pointers = [problem["pointer"] for problem in problems]
        name = pointer.strip()
        assert any(each.startswith((name, name.replace("/run_at", "/schedule/at"))) for each in pointers), (name, problems)
    assert not [each for each in installation.log(running.orders).look() if each.key == job_id.encode()]


def test_our_own_topics_are_no_targets(running: Running) -> None:
    installation, _, _ = running
    job_id = id_in(installation.layout, 4, start="own")
    places = [
        installation.request(job_id, running.once(target=f"kafka://{installation.name(topic)}"))
        for topic in ("state", "jobs", "requests.public", "anything")
    ]
    for rejected in rejections(installation, places):
        assert "/target/topic/name" in str(rejected.document["reason"])


def test_every_schedule_that_must_be_refused(running: Running) -> None:
    """The rows of the shared cases that are refused at creation, through a real request."""
    installation, orders, _ = running
    rows = map(orjson.loads, (CASES / "behaviour.jsonl").read_bytes().splitlines())
    definitions = [(row["id"], fields) for row in rows if row["expected"].get("create") == "refused" for fields in crons(row)]
    assert len(definitions) > 10
    job_id = id_in(installation.layout, 6, start="cases")
    places = [
        installation.request(job_id, {"target": f"kafka://{orders}", **fields}) for _, fields in definitions
    ]
    check_alive(running, 6)
    for (name, _), rejected in zip(definitions, rejections(installation, places), strict=True):
        assert rejected.document["reason"], name


def crons(row: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    """The definitions of a case about cron expressions: one per expression and zone."""
    given = row["input"]
    if "cron" not in given:
        return []
    expressions, zones = (each if isinstance(each, list) else [each] for each in (given["cron"], given.get("timezone", "UTC")))
    return [{"schedule": {"cron": cron}, "timezone": zone} for cron in expressions for zone in zones]


def test_instants_at_their_limits(running: Running) -> None:
    """clk-13, clk-15, clk-16: local times need no zone (UTC), digits below a millisecond are cut, never rounded up."""
    installation, orders, _ = running
    given = {
        "clk-13-local": ({"run_at": "2030-01-01T09:00:00"}, 1893488400000),
        "clk-13-zone": ({"run_at": "2030-01-01T09:00:00", "timezone": "America/New_York"}, 1893506400000),
        "clk-15": ({"run_at": "2030-06-24T14:54:41.634999969Z"}, 1908543281634),
        "far": ({"run_at": "9999-12-31T23:59:59.999Z"}, 253402300799999),
    }
    for job_id, (fields, _) in given.items():
        installation.request(job_id, {"target": f"kafka://{orders}", **fields})
    for job_id, (_, due) in given.items():
        cursor = installation.log("state").of_key(f"cursor/{job_id}")[-1].document
        assert cursor["due"] == due, job_id


def test_the_last_accepted_definition_stays_in_force(running: Running) -> None:
    installation, _, _ = running
    schedule = {"schedule": {"every": "PT1S"}, "timing": "exact", "run_at": None}
    document = {name: value for name, value in running.once(**schedule, payload="good").items() if value is not None}
    installation.request("stays", document)
    first = installation.log(running.orders).of_key("stays")[0]
    place = installation.request("stays", {**document, "payload": "bad", "schedule": {"every": "PT0S"}})
    rejections(installation, [place])
    later = installation.log(running.orders).of_key("stays", 3)
    assert {each.value for each in later} == {b'"good"'}
    assert first in later
    (kept,) = [each for each in installation.log("jobs").look() if each.key == b"stays"]
    assert kept.document["payload"] == "good"
    installation.request("stays", None)


def test_duplicates_of_a_request_change_nothing(running: Running) -> None:
    installation, _, _ = running
    for _ in range(3):
        installation.request("again", running.once(payload=1))
    installation.log("jobs").of_key("again", 3)
    installation.log(running.orders).of_key("again")
    check_alive(running, installation.layout.partition_of("again"))
    assert len([each for each in installation.log(running.orders).look() if each.key == b"again"]) == 1


def test_a_value_of_ten_megabytes_is_refused_by_the_broker(running: Running) -> None:
    """It never gets on the topic: the producer is told (max.message.bytes of `requests.*` is one MiB)."""
    installation, _, _ = running
    with pytest.raises(ck.KafkaException, match="too large") as refused:
        installation.producer.produce(installation.name("requests.public"), b"x" * 30_000_000, b"huge")
    assert refused.value.args[0].code() == ck.KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        installation.request("huge", b'{"payload":"' + b"x" * 10_000_000 + b'"}')
    check_alive(running, installation.layout.partition_of("huge"))


def test_a_request_in_the_wrong_partition_is_forwarded(running: Running) -> None:
    installation, _, _ = running
    layout = installation.layout
    for wrong in range(layout.partitions):
        job_id = id_in(layout, (wrong + 3) % layout.partitions, start=f"astray-{wrong}")
        installation.request(job_id, running.once(payload=wrong), partition=wrong, headers=[("x", None), ("y", b"\xff")])
        (record,) = installation.log(running.orders).of_key(job_id)
        assert record.value == b"%d" % wrong
        job = installation.log("jobs").of_key(job_id)[0]
        assert job.partition == layout.partition_of(job_id)
        installation.request(job_id, None, partition=wrong)
        installation.log("jobs").until(lambda found, key=job_id.encode(): any(each.key == key and each.value is None for each in found))


def test_forwarded_requests_are_applied_once_across_restarts(running: Running) -> None:
    """Triggers in wrong partitions: one run each, however often the scheduler starts again."""
    installation, _, scheduler = running
    jobs = [f"hand-{number}" for number in range(40)]
    schedule = {"schedule": {"every": "P30D"}, "timing": "exact", "target": f"kafka://{running.orders}"}
    installation.request_many(dict.fromkeys(jobs, schedule))
    installation.log("jobs").until(lambda found: {each.encode() for each in jobs} <= {each.key for each in found})
    for job_id in jobs:
        wrong = (installation.layout.partition_of(job_id) + 1) % installation.layout.partitions
        installation.request(job_id, b"{}", kind="trigger", partition=wrong)
    for _ in range(2):
        runs = triggered(installation, running.orders, len(jobs))
        assert len(runs) == len(set(runs)) == len(jobs)
        assert scheduler.terminate() == 0
        scheduler.start().until_owner()
        for partition in range(installation.layout.partitions):
            check_alive(running, partition)
    assert len(triggered(installation, running.orders, len(jobs))) == len(jobs)


def triggered(installation: Installation, topic: str, count: int) -> list[str]:
    found = installation.log(topic).until(lambda all_: sum(each.run_id.startswith("hand-") for each in all_) >= count)
    return [each.run_id for each in found if each.run_id.startswith("hand-")]


def test_a_stale_copy_in_a_wrong_partition_is_refused(running: Running) -> None:
    """It was written before the version in force, and arrives later: hung in a transaction that commits at the end."""
    installation, _, _ = running
    layout = installation.layout
    job_id = id_in(layout, 5, start="stale")
    topic = installation.name("requests.hung")
    with transaction(installation) as producer:
        producer.produce(topic, orjson.dumps(running.once(payload="old")), job_id.encode(), partition=1)
        producer.flush()
        installation.request(job_id, running.once(payload="new"), domain="hung")
        installation.log(running.orders).of_key(job_id)
        producer.commit_transaction()
    offset = next(each.offset for each in installation.log("requests.hung").of_key(job_id, 2) if each.partition == 1)
    (rejected,) = rejections(installation, [(1, offset)], domain="hung")
    assert "stale" in str(rejected.document["reason"])
    (record,) = installation.log(running.orders).of_key(job_id)
    assert record.value == b'"new"'


class transaction:  # noqa: N801 - reads like a statement
    """A transactional producer of a foreign service, inside a transaction; aborts what was not committed."""

    def __init__(self, installation: Installation) -> None:
        settings = {"bootstrap.servers": installation.bootstrap, "transactional.id": f"foreign-{uuid.uuid4().hex}"}
        self._producer = ck.Producer({**settings, "partitioner": "murmur2_random", "log_level": 2})

    def __enter__(self) -> ck.Producer:
        self._producer.init_transactions(15)
        self._producer.begin_transaction()
        return self._producer

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._producer.abort_transaction(15)


def test_transactions_of_one_record_each(running: Running) -> None:
    """kaf-05: offsets have holes; aborted ones are never seen."""
    installation, _, scheduler = running
    topic = installation.name("requests.public")
    settings = {"bootstrap.servers": installation.bootstrap, "transactional.id": f"foreign-{uuid.uuid4().hex}"}
    producer = ck.Producer({**settings, "partitioner": "murmur2_random", "log_level": 2})
    producer.init_transactions(15)
    for number in range(20):
        producer.begin_transaction()
        name = "aborted" if number % 3 == 0 else "committed"
        producer.produce(topic, orjson.dumps(running.once(payload=number)), f"{name}-{number}".encode())
        producer.abort_transaction(15) if name == "aborted" else producer.commit_transaction(15)
    committed = {f"committed-{number}".encode() for number in range(20) if number % 3}
    installation.log(running.orders).until(lambda found: committed <= {each.key for each in found})
    assert scheduler.terminate() == 0
    scheduler.start().until_owner()
    for partition in range(installation.layout.partitions):
        check_alive(running, partition)
    keys = [each.key for each in installation.log(running.orders).look() if b"ted-" in (each.key or b"")]
    assert sorted(keys) == sorted(committed)
    assert not any((each.key or b"").startswith(b"aborted-") for each in installation.log("jobs").look())


def test_a_transaction_that_hangs_holds_up_its_own_partition_only(running: Running) -> None:
    installation, _, _ = running
    layout = installation.layout
    behind = id_in(layout, 0, start="behind")
    with transaction(installation) as producer:
        hung = id_in(layout, 0, start="hung")
        producer.produce(installation.name("requests.hung"), orjson.dumps(running.once()), hung.encode(), partition=0)
        producer.flush()
        installation.request(behind, running.once(), domain="hung")
        installation.request(beside := id_in(layout, 1, start="beside"), running.once(), domain="hung")
        installation.log(running.orders).of_key(beside)
        check_alive(running, 0)
        assert not [each for each in installation.log(running.orders).look() if each.key in (hung.encode(), behind.encode())]
        producer.commit_transaction()
    for job_id in (hung, behind):
        installation.log(running.orders).of_key(job_id)


def test_a_domain_speaks_for_its_tenants_only(running: Running) -> None:
    installation, _, _ = running
    installation.request("shop-job", running.once(tenant="shop"), domain="orders")
    installation.log(running.orders).of_key("shop-job")
    installation.request("bank-job", running.once(tenant="bank", payload="secret"))
    installation.log(running.orders).of_key("bank-job")
    places = [
        installation.request("new-job", running.once(tenant="bank"), domain="orders"),
        installation.request("bank-job", running.once(tenant="shop"), domain="orders"),
        installation.request("bank-job", None, domain="orders"),
        installation.request("bank-job", b"{}", kind="trigger", domain="orders"),
    ]
    for rejected in rejections(installation, places, domain="orders"):
        assert "secret" not in str(rejected.document["reason"])
    assert len(installation.log(running.orders).of_key("bank-job")) == 1
    assert [each.value is None for each in installation.log("jobs").of_key("bank-job")] == [False]


def test_headers_beyond_reason(running: Running) -> None:
    installation, _, _ = running
    layout = installation.layout
    places = [
        installation.request(id_in(layout, 7, start="head"), running.once(), headers=[("kind", b"\xff")]),
        installation.request(id_in(layout, 7, start="head"), running.once(), headers=[("kind", b"launch")]),
        installation.request(id_in(layout, 7, start="head"), running.once(), headers=[("if-match", b"never")]),
        installation.request(id_in(layout, 7, start="head"), running.once(), headers=[("content-type", b"application/avro")]),
    ]
    check_alive(running, 7)
    assert all(rejected.document["reason"] for rejected in rejections(installation, places))
    many = [(f"h{number}", b"") for number in range(20_000)]
    installation.request(id_in(layout, 6, start="many"), running.once(), headers=many, partition=7)
    installation.request(id_in(layout, 7, start="many"), running.once(), headers=[("x", b"x" * 900_000)])
    check_alive(running, 7)
    check_alive(running, 6)


RAW_HEADER = """
import asyncio, sys
from aiokafka import AIOKafkaProducer
class Raw(str):
    def encode(self, *_):
        return b"\\xff\\xfe"
async def send():
    async with AIOKafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
        sent = await producer.send_and_wait(sys.argv[2], b"{}", b"raw", partition=1, headers=[(Raw("x"), b"1")])
        print(sent.offset)
asyncio.run(send())
"""
"""A client that writes bytes where others write text, as clients in C or Go can."""


def test_a_header_name_that_is_not_utf8(running: Running) -> None:
    installation, _, _ = running
    environment = {**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}
    command = [sys.executable, "-c", RAW_HEADER, installation.bootstrap, installation.name("requests.public")]
    sent = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    check_alive(running, 1)
    (rejected,) = rejections(installation, [(1, int(sent.stdout))])
    assert "header" in str(rejected.document["reason"])


def test_verdicts_are_kept_for_those_who_ask(running: Running) -> None:
    installation, _, _ = running
    good = installation.request("asked", running.once(), headers=[("verdict", b"1")])
    bad = installation.request("asked", b"{", headers=[("verdict", b"1")])
    for (partition, offset), verdict in ((good, "accepted"), (bad, "refused")):
        key = f"verdict/requests.public/{partition}/{offset}"
        assert installation.log("state").of_key(key)[0].document["verdict"] == verdict
    eventually(lambda: len(rejections(installation, [bad])) == 1)
