"""Commands against real topics; an owner's stand-in answers, or records are written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result
from tests.apps.owner import DUE_MS, StandIn
from tests.conftest import RunningKafka

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.foreign_topics import create_topics, partition_counts, strength_of
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.tail import offsets_since
from noontide.adapters.kafka.topics import ensure_topics
from noontide.apps.cli.common import actor_name
from noontide.apps.cli.main import main
from noontide.core.errors import Problem
from noontide.core.ids import id_from_idempotency_key
from noontide.core.run import Run, RunState
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.leases import encode_lease
from noontide.records.tokens import SECRET_CHARS
from noontide.records.topics import Layout

pytestmark = pytest.mark.kafka

TARGET = {"topic": {"name": "orders"}}


class Scene:
    """An installation of its own, and the command line pointed at it."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.connection = KafkaConnection(bootstrap)
        self.layout = Layout(prefix=prefix, partitions=8, slots=2)
        self._environment = {"NOONTIDE_KAFKA_BOOTSTRAP": bootstrap, "NOONTIDE_PREFIX": prefix, "COLUMNS": "200"}

    def run(self, *arguments: str, stdin: bytes | None = None) -> Result:
        """One command."""
        return CliRunner().invoke(main, arguments, input=stdin, env=self._environment)

    def owner(self, judge: Callable[[Incoming], Sequence[Problem]] = lambda _request: ()) -> StandIn:
        """Somebody who answers."""
        return StandIn(self.connection, self.layout, judge)

    def write(self, topic: str, partition: int, *records: Record) -> None:
        """Append records, as an owner would."""
        producer = RequestProducer(self.connection)
        for record in records:
            producer.send(TopicPartition(self.layout.name(topic), partition), record, lambda _at, _offset: None)
        producer.flush()

    def records(self, topic: str, count: int, **parameters: str) -> list[Incoming]:
        """Everything on a topic with `count` partitions."""
        name = self.layout.name(topic, **parameters)
        ends = KafkaReplay(self.connection).end_offsets([TopicPartition(name, number) for number in range(count)])
        return [record for chunk in KafkaReplay(self.connection).read(dict.fromkeys(ends, 0), ends) for record in chunk]


@pytest.fixture(scope="module")
def scene(kafka: RunningKafka) -> Scene:
    scene = Scene(kafka.bootstrap, "tcli.")
    ensure_topics(scene.connection, scene.layout)
    return scene


def definition(job_id: str, **fields: object) -> bytes:
    return orjson.dumps({"id": job_id, "schedule": {"every": "PT1H"}, "target": TARGET, **fields})


def test_json_reaches_the_requests_topic_byte_for_byte_in_its_partition(scene: Scene) -> None:
    odd = b'{"id":"odd-1",  "schedule": "0 6 * * *", "target":"kafka://x", "payload": {"n": 1.0e+2, "u":"\\u00e4"}}'
    done = scene.run("jobs", "put", "-", "--no-wait", stdin=odd)
    assert (done.exit_code, done.stdout.splitlines()[-1].strip()) == (0, "1 definition sent")
    (record,) = [each for each in scene.records("requests", 8, domain="public") if each.key == b"odd-1"]
    assert record.value == odd
    assert record.partition == scene.layout.partition_of("odd-1")
    assert dict(record.headers) == {"actor": actor_name().encode()}


def test_put_waits_and_shows_the_next_due_and_the_spread(scene: Scene) -> None:
    with scene.owner():
        done = scene.run("jobs", "put", "-", stdin=definition("put-1"))
    assert done.exit_code == 0, done.output
    assert "1 job accepted" in done.stdout
    assert "put-1  2026-12-24T18:00:00Z  + 1.5 s  spread by its id" in done.stdout


def test_put_says_what_was_refused_and_ends_with_1(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    file.write_bytes(definition("put-good") + b"\n" + definition("put-bad") + b"\n")
    problem = Problem("/calendar", "no calendar is called 'x'")
    with scene.owner(lambda request: [problem] if request.key == b"put-bad" else []):
        done = scene.run("jobs", "put", str(file), "--json")
    assert done.exit_code == 1
    assert f"{file}:2: refused: /calendar: no calendar is called 'x'" in done.stderr
    shown = json.loads(done.stdout)
    assert (shown["sent"], shown["accepted"]) == (2, 1)
    assert shown["refused"][0]["id"] == "put-bad"
    assert shown["jobs"][0] | {"etag": None} == {
        "id": "put-good", "etag": None, "state": "active",
        "next_due": "2026-12-24T18:00:00Z", "start_after": "2026-12-24T18:00:01.500Z",
    }  # fmt: skip


def test_put_without_a_scheduler_ends_with_3(scene: Scene) -> None:
    done = scene.run("jobs", "put", "-", "--timeout", "0.3", stdin=definition("put-unheard"))
    assert done.exit_code == 3
    assert "1 of 1 requests were sent but not decided within 0 s: is a scheduler running?" in done.stderr


def test_keep_going_sends_the_valid_ones(scene: Scene) -> None:
    text = definition("kept-1") + b"\n" + b'{"id":"kept-2"}\n'
    with scene.owner() as owner:
        done = scene.run("jobs", "put", "-", "--keep-going", stdin=text)
    assert done.exit_code == 1
    assert "stdin:2: /target" in done.stderr
    assert [request.key for request in owner.requests] == [b"kept-1"]


def test_ids_are_made_from_the_idempotency_key_or_anew(scene: Scene) -> None:
    text = orjson.dumps([{"run_at": "2026-12-24T18:00:00Z", "target": TARGET, "idempotency_key": "order-7"}])
    anew = orjson.dumps([{"run_at": "2026-12-24T18:00:00Z", "target": TARGET}])
    first = scene.run("jobs", "put", "-", "--no-wait", "--json", stdin=text)
    second = scene.run("jobs", "put", "-", "--no-wait", "--json", stdin=anew)
    assert json.loads(first.stdout)["jobs"][0]["id"] == id_from_idempotency_key("default", "order-7")
    assert json.loads(second.stdout)["jobs"][0]["id"][14] == "7"


def test_many_lines_are_counted(scene: Scene) -> None:
    lines = b"\n".join(definition(f"many-{number}") for number in range(3_000))
    with scene.owner() as owner:
        done = scene.run("jobs", "put", "-", stdin=lines)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3,000 jobs accepted"
    assert len({request.key for request in owner.requests}) == 3_000


def test_add_makes_a_definition(scene: Scene) -> None:
    with scene.owner() as owner:
        topic = f"for-{scene.layout.prefix}orders"
        said = ("--every", "90s", "--topic", topic, "--key", "k", "--id", "add-1", "--payload", '{"a": 1.0}')
        refused = scene.run("jobs", "add", *said)
        assert (refused.exit_code, "--create-topic" in refused.stderr) == (1, True)
        done = scene.run("jobs", "add", *said, "--create-topic")
    assert done.exit_code == 0, done.stderr
    assert orjson.loads(owner.requests[0].value or b"") == {
        "id": "add-1", "schedule": {"every": "PT1M30S"}, "payload": {"a": 1.0},
        "target": {"topic": {"name": topic, "key": "k"}},
    }  # fmt: skip


def test_get_and_list_show_state_and_why_a_start_is_later(scene: Scene) -> None:
    with scene.owner():
        scene.run("jobs", "put", "-", stdin=definition("list-1", labels={"team": "x"}, timing={"window": "PT1H"}))
        scene.run("jobs", "put", "-", stdin=definition("list-2", labels={"team": "y"}, paused=True))
    got = scene.run("jobs", "get", "list-1")
    assert "next due (UTC)  2026-12-24T18:00:00Z" in got.stdout
    assert "2026-12-24T18:00:01.500Z (+ 1.5 s)" in got.stdout
    listed = [json.loads(line) for line in scene.run("jobs", "list", "--label", "team", "--json").stdout.splitlines()]
    assert [(each["id"], each["state"]) for each in listed] == [("list-1", "active"), ("list-2", "paused")]
    paused = scene.run("jobs", "list", "--state", "paused", "--label", "team=y")
    assert "list-2" in paused.stdout
    assert "list-1" not in paused.stdout
    assert scene.run("jobs", "list", "--tenant", "nobody").stdout.strip() == "no jobs"


def test_a_job_that_is_not_there(scene: Scene) -> None:
    done = scene.run("jobs", "get", "nothing")
    assert (done.exit_code, done.stderr) == (1, "Error: there is no job 'nothing'\n")


def test_pause_sends_the_job_with_a_flag_and_its_etag_and_resume_takes_it_away(scene: Scene) -> None:
    with scene.owner() as owner:
        scene.run("jobs", "put", "-", stdin=definition("pause-1", payload={"n": 1.50}))
        paused = scene.run("jobs", "pause", "pause-1", "--note", "broken")
        resumed = scene.run("jobs", "resume", "pause-1")
    assert (paused.exit_code, resumed.exit_code) == (0, 0), paused.stderr + resumed.stderr
    put, pause, resume = owner.requests
    etag = f"public-{put.partition}-{put.offset}".encode()
    assert dict(pause.headers)["if-match"] == etag
    assert orjson.loads(pause.value or b"")["paused"] is True
    assert orjson.loads(pause.value or b"")["note"] == "broken"
    assert "paused" not in orjson.loads(resume.value or b"")
    assert orjson.loads(resume.value or b"")["payload"] == {"n": 1.5}


def test_a_lost_race_is_tried_again_three_times_at_most(scene: Scene) -> None:
    lost = Problem("", "if-match 'public-1-1' failed: the version in force is 'public-1-2'")
    races = iter([[], [lost], []])
    with scene.owner(lambda _request: next(races)):
        scene.run("jobs", "put", "-", stdin=definition("race-1"))
        won = scene.run("jobs", "pause", "race-1")
    with scene.owner(lambda _request: [lost]) as owner:
        given_up = scene.run("jobs", "resume", "race-1")
    assert won.exit_code == 0
    assert (given_up.exit_code, len(owner.requests)) == (1, 3)
    assert "if-match" in given_up.stderr


def test_delete_and_trigger_and_cancel_ask_for_verdicts(scene: Scene) -> None:
    gone = Problem("", "there is no job 'del-2'")
    with scene.owner(lambda request: [gone] if request.key == b"del-2" else []) as owner:
        deleted = scene.run("jobs", "delete", "del-1", "del-2")
        triggered = scene.run("jobs", "trigger", "del-1", "--payload", '{"a": 1.0}', "--reason", "again")
        cancelled = scene.run("runs", "cancel", "del-1:20261224T180000Z", "--reason", "wrong")
    assert deleted.exit_code == 1
    assert "del-2: there is no job 'del-2'" in deleted.stderr
    assert deleted.stdout == "1 job deleted\n"
    trigger, cancel = owner.requests[2:]
    assert triggered.stdout == f"triggered as del-1:m{trigger.offset}-public\n"
    assert (trigger.value, dict(trigger.headers)["kind"]) == (b'{"reason":"again","payload":{"a": 1.0}}', b"trigger")
    assert cancelled.exit_code == 0
    assert orjson.loads(cancel.value or b"") == {"run_id": "del-1:20261224T180000Z", "reason": "wrong"}
    assert {dict(request.headers)["verdict"] for request in owner.requests} == {b"1"}


def execution(job_id: str, number: int) -> Record:
    """As topics/executions.yaml has it."""
    run_id = f"{job_id}:2026122{number}T180000Z"
    value = {
        "run_id": run_id, "job_id": job_id, "tenant": "default", "due": "2026-12-24T18:00:00.000Z",
        "start_after": "2026-12-24T18:00:01.500Z", "state": "succeeded", "target": "kafka://orders",
        "ended_at": "2026-12-24T18:00:01.504Z", "late_ms": 4,
    }  # fmt: skip
    return Record(run_id.encode(), orjson.dumps(value))


def test_runs_list_shows_the_latest_of_a_job(scene: Scene) -> None:
    slot = scene.layout.slot_of(scene.layout.partition_of("run-1"))
    scene.write("executions", slot, *(execution("run-1", number) for number in range(1, 6)), execution("run-x", 1))
    listed = scene.run("runs", "list", "--job", "run-1", "--limit", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["run_id"] for line in listed] == ["run-1:20261224T180000Z", "run-1:20261225T180000Z"]
    table = scene.run("runs", "list", "--job", "run-1", "--limit", "1").stdout
    assert "2026-12-24T18:00:01.500Z  4 ms  succeeded  run-1  kafka://orders" in table


def test_watch_goes_back_and_ends_after_a_count(scene: Scene) -> None:
    slot = scene.layout.slot_of(scene.layout.partition_of("watch-1"))
    scene.write("executions", slot, execution("watch-1", 1), execution("watch-1", 2))
    done = scene.run("runs", "watch", "--job", "watch-1", "--since", "5m", "--count", "2")
    assert done.exit_code == 0, done.output
    first, _second = done.stdout.splitlines()
    assert first == (
        "2026-12-24T18:00:01.504Z  due 2026-12-24T18:00:00Z  starts 2026-12-24T18:00:01.500Z  late 4 ms  "
        "succeeded  watch-1  kafka://orders"
    )


def test_live_runs_say_why_they_wait(scene: Scene) -> None:
    run = Run(
        run_id="live-1:20261224T180000Z", job_id="live-1", tenant="default", state=RunState.PENDING, due_ms=DUE_MS,
        start_ms=DUE_MS, claimed_ms=DUE_MS, target="kafka://orders", reason="topic orders has no leader",
    )  # fmt: skip
    closed = run._replace(run_id="live-1:20261225T180000Z")
    slot = scene.layout.slot_of(scene.layout.partition_of("live-1"))
    records = [Record(each.run_id.encode(), encode_lease(each)) for each in (run, closed)]
    scene.write("leases", slot, *records, Record(closed.run_id.encode(), None))
    shown = scene.run("runs", "list", "--live", "--job", "live-1")
    assert shown.exit_code == 0, shown.output
    assert "topic orders has no leader" in shown.stdout
    assert "20261225" not in shown.stdout
    (line,) = scene.run("runs", "list", "--live", "--job", "live-1", "--json").stdout.splitlines()
    assert json.loads(line)["run_id"] == run.run_id


def test_changes_of_the_configuration_leave_a_trace(scene: Scene) -> None:
    scene.run("config", "put", "channel/ops", '{"url": "https://chat.example/hooks/s3cret"}')
    scene.run("config", "delete", "channel/ops")
    traces = [json.loads(each.value or b"") for each in scene.records("audit", 2) if each.key == b"channel/ops"]
    assert [each["action"] for each in traces] == ["configured", "configured"]
    assert [each["actor"] for each in traces] == [actor_name()] * 2
    assert traces[0]["before"] is None
    assert traces[0]["after"] == traces[1]["before"] == {"url": "https://chat.example/***"}
    assert traces[1]["after"] is None


def test_a_token_is_made_shown_once_rotated_and_revoked(scene: Scene) -> None:
    made = scene.run("tokens", "create", "ci", "--role", "operator", "--tenant", "billing", "--expires", "90d")
    assert made.exit_code == 0, made.output
    text = made.stdout.strip()
    assert text.startswith("noontide_ci_")
    again = scene.run("tokens", "create", "ci", "--role", "admin", "--all-tenants")
    assert (again.exit_code, "already" in again.output) == (1, True)
    (listed,) = [json.loads(line) for line in scene.run("tokens", "list", "--json").stdout.splitlines()]
    assert (listed["role"], listed["tenants"], listed["created_by"]) == ("operator", ["billing"], actor_name())
    rotated = json.loads(scene.run("tokens", "rotate", "ci", "--grace", "0s", "--json").stdout)
    assert rotated["token"] != text
    assert scene.run("tokens", "revoke", "ci").exit_code == 0
    assert scene.run("tokens", "revoke", "ci").exit_code == 1
    for topic, count in (("config", 1), ("audit", 2)):
        kept = b"".join(each.value or b"" for each in scene.records(topic, count))
        assert not [each for each in (text, rotated["token"]) if each[-SECRET_CHARS:].encode() in kept]


@pytest.mark.parametrize(
    "options, why",
    [
        (("UPPER", "--role", "viewer", "--all-tenants"), "cannot name a token"),
        (("ci2", "--role", "viewer"), "--all-tenants"),
        (("ci2", "--role", "viewer", "--all-tenants", "--tenant", "a"), "--all-tenants"),
        (("ci2", "--role", "viewer", "--tenant", "a b"), "--tenant"),
        (("ci2", "--role", "viewer", "--tenant", "a", "--expires", "2020-01-01T00:00:00Z"), "over already"),
        (("ci2", "--role", "viewer", "--tenant", "a", "--expires", "soon"), "--expires"),
    ],
)
def test_tokens_that_cannot_be(scene: Scene, options: tuple[str, ...], why: str) -> None:
    done = scene.run("tokens", "create", *options)
    assert (done.exit_code, why in done.output) == (2, True), done.output


def test_tokens_are_not_put_or_shown_as_configuration(scene: Scene) -> None:
    assert scene.run("config", "put", "token/x", "{}").exit_code == 1
    scene.run("tokens", "create", "shown", "--role", "viewer", "--all-tenants")
    for done in (scene.run("config", "get", "token/shown"), scene.run("config", "list", "--json")):
        assert "viewer" in done.stdout
        assert "sha256" not in done.stdout


def test_configuration_round_trip(scene: Scene) -> None:
    assert scene.run("config", "put", "tenant/acme", '{"weight": 2}').exit_code == 0
    assert json.loads(scene.run("config", "get", "tenant/acme").stdout) == {"weight": 2}
    listed = [json.loads(line) for line in scene.run("config", "list", "tenant", "--json").stdout.splitlines()]
    assert listed == [{"key": "tenant/acme", "value": {"weight": 2}}]
    assert scene.run("config", "delete", "tenant/acme").exit_code == 0
    assert scene.run("config", "get", "tenant/acme").exit_code == 1
    assert scene.run("config", "delete", "tenant/acme").exit_code == 1


def test_calendars_may_be_files(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "holidays.yaml"
    file.write_text("dates:\n  - 2026-10-03\n  - {from: 2026-12-25, to: 2026-12-26}\n")
    done = scene.run("config", "put", "calendar/de", str(file))
    assert done.exit_code == 0, done.stderr
    value = {"dates": ["2026-10-03", {"from": "2026-12-25", "to": "2026-12-26"}]}
    assert json.loads(scene.run("config", "get", "calendar/de").stdout) == value


def test_a_registered_topic_must_exist_and_weak_ones_are_warned_of(scene: Scene) -> None:
    name = f"{scene.layout.prefix.removesuffix('.')}-target"
    missing = scene.run("config", "put", "target/x", json.dumps({"topic": name}))
    assert missing.exit_code == 1
    assert f"the topic '{name}' does not exist" in missing.stderr
    assert create_topics(scene.connection, {name: 3}, config={}) == (name,)
    assert create_topics(scene.connection, {name: 3}, config={}) == ()
    weak = scene.run("config", "put", "target/x", json.dumps({"topic": name}))
    assert weak.exit_code == 0
    assert f"warning: {name} has 1 replica" in weak.stderr
    assert partition_counts(scene.connection, [name, "nothing"]) == {name: 3}
    strength = strength_of(scene.connection, name)
    assert strength is not None
    assert strength[:2] == (3, 1)
    own = scene.run("config", "put", "target/y", json.dumps({"topic": scene.layout.name("jobs")}))
    assert (own.exit_code, "own topics" in own.stderr) == (1, True)


def test_a_prefix_without_topics_is_said(kafka: RunningKafka, prefix: str) -> None:
    done = Scene(kafka.bootstrap, prefix).run("jobs", "list")
    assert done.exit_code == 1
    assert "noontide topics apply" in done.stderr


def test_offsets_since_are_ends_when_nothing_is_younger(scene: Scene) -> None:
    at = TopicPartition(scene.layout.name("alerts"), 0)
    scene.write("alerts", 0, Record(b"k", b"1"), Record(b"k", b"2"))
    (end,) = KafkaReplay(scene.connection).end_offsets([at]).values()
    first = offsets_since(scene.connection, [at], since_ms=0)[at]
    assert (first, offsets_since(scene.connection, [at], since_ms=1 << 45)[at]) == (0, end)
