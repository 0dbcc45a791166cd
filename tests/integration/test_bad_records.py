"""What strangers write on `requests.*`: each bad record is refused with its place and a reason, and holds up nothing.

Rows kaf-02, kaf-04, kaf-05, kaf-12, clk-13, clk-15, clk-16, clk-17, cron-*, tz-*, ids-*, pay-* of the shared cases, as
raw records. Each test ends with a valid record behind the bad ones in the same partition, which must be carried out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.bad_records_site import Running, check_alive, id_in, rejections, running_scheduler
from tests.integration.installation import eventually

CASES = Path(__file__).parent.parent / "cases"


@pytest.fixture(scope="module")
def running(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_scheduler(kafka.bootstrap, tmp_path_factory.mktemp("bad")) as made:
        yield made


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
        name: installation.request(id_in(installation.layout, 3, start="bad"), value)
        for name, value in BAD_VALUES.items()
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
        assert any(each.startswith((name, name.replace("/run_at", "/schedule/at"))) for each in pointers), (
            name,
            problems,
        )
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
    definitions = [
        (row["id"], fields) for row in rows if row["expected"].get("create") == "refused" for fields in crons(row)
    ]
    assert len(definitions) > 10
    job_id = id_in(installation.layout, 6, start="cases")
    places = [installation.request(job_id, {"target": f"kafka://{orders}", **fields}) for _, fields in definitions]
    check_alive(running, 6)
    for (name, _), rejected in zip(definitions, rejections(installation, places), strict=True):
        assert rejected.document["reason"], name


def crons(row: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    """The definitions of a case about cron expressions: one per expression and zone."""
    given = row["input"]
    if "cron" not in given:
        return []
    expressions, zones = (
        each if isinstance(each, list) else [each] for each in (given["cron"], given.get("timezone", "UTC"))
    )
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
    assert installation.log("jobs").count("stays") == 1
    (kept,) = installation.log("jobs").of_key("stays")
    assert kept.document["payload"] == "good"
    installation.request("stays", None)


def test_duplicates_of_a_request_change_nothing(running: Running) -> None:
    installation, _, _ = running
    for _ in range(3):
        installation.request("again", running.once(payload=1))
    installation.log("jobs").of_key("again", 3)
    installation.log(running.orders).of_key("again")
    check_alive(running, installation.layout.partition_of("again"))
    assert installation.log(running.orders).count("again") == 1


def test_a_value_of_ten_megabytes_is_refused_by_the_broker(running: Running) -> None:
    """It never gets on the topic: the producer is told (max.message.bytes of `requests.*` is one MiB)."""
    installation, _, _ = running
    with pytest.raises(ck.KafkaException, match="too large") as refused:
        installation.producer.produce(installation.name("requests.public"), b"x" * 30_000_000, b"huge")
    assert refused.value.args[0].code() == ck.KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        installation.request("huge", b'{"payload":"' + b"x" * 10_000_000 + b'"}')
    check_alive(running, installation.layout.partition_of("huge"))


def test_headers_beyond_reason(running: Running) -> None:
    installation, _, _ = running
    layout = installation.layout
    places = [
        installation.request(id_in(layout, 7, start="head"), running.once(), headers=[("kind", b"\xff")]),
        installation.request(id_in(layout, 7, start="head"), running.once(), headers=[("kind", b"launch")]),
        installation.request(id_in(layout, 7, start="head"), running.once(), headers=[("if-match", b"never")]),
        installation.request(
            id_in(layout, 7, start="head"), running.once(), headers=[("content-type", b"application/avro")]
        ),
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
