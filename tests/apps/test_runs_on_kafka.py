"""`runs show | cancel | retry | redrive` and `workers` against real topics whose records are written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import orjson
import pytest
from click.testing import CliRunner, Result
from tests.apps.owner import StandIn
from tests.conftest import RunningKafka

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.topics import ensure_topics
from noontide.apps.cli.main import main
from noontide.core.errors import Problem
from noontide.core.run import Run, RunState
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.executions import Times, closed
from noontide.records.leases import encode_lease
from noontide.records.state import DEAD
from noontide.records.topics import Layout

pytestmark = pytest.mark.kafka

DUE_MS = 1_769_277_600_000  # 2026-01-24T18:00:00Z, before any record of a test is appended
FAILED = {"attempt": 1, "token": 4, "worker": "w-1", "granted": DUE_MS + 10, "ended": DUE_MS + 1_010}
ATTEMPTS = orjson.dumps([{**FAILED, "reason": "max_attempts", "error": "HTTP 503"}]).decode()


class Scene:
    """An installation of its own, and the command line pointed at it."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.connection = KafkaConnection(bootstrap)
        self.layout = Layout(prefix=prefix, partitions=8, slots=2)
        self._environment = {"NOONTIDE_KAFKA_BOOTSTRAP": bootstrap, "NOONTIDE_PREFIX": prefix, "COLUMNS": "200"}

    def run(self, *arguments: str) -> Result:
        """One command."""
        return CliRunner().invoke(main, arguments, env=self._environment)

    def lines(self, *arguments: str) -> list[dict[str, object]]:
        """One command with --json, which must succeed."""
        done = self.run(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def owner(self, judge: Callable[[Incoming], Sequence[Problem]] = lambda _request: ()) -> StandIn:
        """Somebody who answers."""
        return StandIn(self.connection, self.layout, judge)

    def write(self, topic: str, job_id: str, *records: Record) -> None:
        """Append records to the slot of a job, as its owner would."""
        at = TopicPartition(self.layout.name(topic), self.layout.slot_of(self.layout.partition_of(job_id)))
        producer = RequestProducer(self.connection)
        for record in records:
            producer.send(at, record, lambda _at, _offset: None)
        producer.flush()

    def bury(self, job_id: str, number: int, *, at_ms: int, reason: str = "max_attempts") -> str:
        """A run that is dead; returns its id."""
        run_id = f"{job_id}:2026012{number}T180000Z"
        letter = {
            "run_id": run_id, "job_id": job_id, "tenant": "default", "due": DUE_MS, "attempt": 1, "token": 4,
            "reason": reason, "error": "HTTP 503", "attempts": ATTEMPTS, "at": at_ms, "job": {"id": job_id},
        }  # fmt: skip
        self.write("dead-letters", job_id, Record(job_id.encode(), orjson.dumps(letter)))
        self.write("state", job_id, Record(DEAD + run_id.encode(), b"{}"))
        return run_id

    def revive(self, job_id: str, run_id: str) -> None:
        """It was redriven."""
        self.write("state", job_id, Record(DEAD + run_id.encode(), None))


@pytest.fixture(scope="module")
def scene(kafka: RunningKafka) -> Scene:
    scene = Scene(kafka.bootstrap, "truns.")
    ensure_topics(scene.connection, scene.layout)
    return scene


def live(job_id: str, number: int, state: RunState, **fields: object) -> Run:
    run = Run(
        run_id=f"{job_id}:2026012{number}T180000Z", job_id=job_id, tenant="default", state=state, due_ms=DUE_MS,
        start_ms=DUE_MS, claimed_ms=DUE_MS, target="handler:resize", lane="default",
    )  # fmt: skip
    return run._replace(**fields)  # type: ignore[arg-type] # by name


def lease(run: Run) -> Record:
    return Record(run.run_id.encode(), encode_lease(run))


def asked_of(owner: StandIn) -> list[tuple[bytes | None, bytes | None, object]]:
    return [
        (request.key, dict(request.headers)["kind"], orjson.loads(request.value or b"")) for request in owner.requests
    ]


# --- redrive, retry


def test_redrive_finds_what_is_dead_still_and_leaves_out_what_was_redriven(scene: Scene) -> None:
    first, second, third = (scene.bury("again", number, at_ms=DUE_MS + number) for number in (1, 2, 3))
    scene.bury("other", 1, at_ms=DUE_MS)
    scene.revive("again", second)
    dry = scene.lines("runs", "redrive", "--job", "again", "--dry-run")
    assert [(each["run_id"], each["reason"], each["error"]) for each in dry] == [
        (first, "max_attempts", "HTTP 503"), (third, "max_attempts", "HTTP 503"),
    ]  # fmt: skip
    with scene.owner() as owner:
        done = scene.run("runs", "redrive", "--job", "again")
    assert (done.exit_code, done.stdout) == (0, "2 runs started again\n")
    assert asked_of(owner) == [(b"again", b"redrive", {"run_id": run_id}) for run_id in (first, third)]


def test_redrive_chooses_by_the_time_of_the_end_and_by_reason(scene: Scene) -> None:
    ids = [scene.bury("timed", number, at_ms=DUE_MS + 1_000 * number) for number in (1, 2, 3)]
    lost = scene.bury("timed", 4, at_ms=DUE_MS + 4_000, reason="lease_lost")

    def found(*options: str) -> list[object]:
        return [each["run_id"] for each in scene.lines("runs", "redrive", "--job", "timed", "--dry-run", *options)]

    assert found("--from", "2026-01-24T18:00:02Z", "--to", "2026-01-24T18:00:04Z") == ids[1:]
    assert found("--from", "2026-01-24T18:00:02.001Z", "--to", "2026-01-24T18:00:04.001Z") == [ids[2], lost]
    assert found("--reason", "lease") == [lost]
    assert found("--reason", "503") == [*ids, lost]
    assert found("--limit", "1") == [ids[0]]
    assert scene.run("runs", "redrive", "--job", "nobody", "--dry-run").stdout == "no dead runs match\n"


def test_what_the_owner_refuses_is_said_and_ends_with_1(scene: Scene) -> None:
    refusal = Problem("/run_id", "'named:m7' is neither dead nor waiting for a retry")
    with scene.owner(lambda request: [refusal] if b"m7" in (request.value or b"") else []) as owner:
        done = scene.run("runs", "retry", "named:m7", "named:m8", "named:m8", "--json")
    assert done.exit_code == 1
    problem = f"/run_id: {refusal.message}"
    assert json.loads(done.stdout) == {
        "asked": 2, "started": ["named:m8"], "refused": [{"run_id": "named:m7", "problem": problem}],
    }  # fmt: skip
    assert asked_of(owner) == [(b"named", b"redrive", {"run_id": run_id}) for run_id in ("named:m7", "named:m8")]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("redrive",), "name the runs, or choose them"),
        (("redrive", "a:m1", "--job", "a"), "name the runs, or choose them"),
        (("redrive", "--from", "soon"), "--from"),
        (("retry",), "Missing argument"),
        (("cancel",), "give a RUN_ID, or --job"),
        (("cancel", "a:m1", "--job", "a"), "give a RUN_ID, or --job"),
        (("show", "a"), "is not a run id"),
    ],
)
def test_wrong_use_is_said(scene: Scene, arguments: tuple[str, ...], said: str) -> None:
    done = scene.run("runs", *arguments)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


# --- cancel


def test_all_live_runs_of_a_job_are_cancelled_and_workers_are_asked(scene: Scene) -> None:
    waits = live("stop", 1, RunState.PENDING, reason="ready in lane default")
    runs = live("stop", 2, RunState.RUNNING, worker="w-1", granted_ms=DUE_MS, attempt=1, token=1)
    scene.write("leases", "stop", lease(waits), lease(runs), lease(live("stop-not", 1, RunState.PENDING)))

    def as_owner(request: Incoming) -> Sequence[Problem]:
        asked = lease(runs._replace(cancel="enough"))
        scene.write("leases", "stop", Record(waits.run_id.encode(), None), asked)
        assert orjson.loads(request.value or b"") == {"reason": "enough"}
        return ()

    with scene.owner(as_owner) as owner:
        shown = scene.lines("runs", "cancel", "--job", "stop", "--reason", "enough")
    assert [request.key for request in owner.requests] == [b"stop"]
    assert [(each["run_id"], each["now"]) for each in shown] == [
        (waits.run_id, "cancelled"), (runs.run_id, "asked to stop"),
    ]  # fmt: skip
    assert str(shown[0]["was"]).endswith(": ready in lane default")
    assert str(shown[1]["was"]).startswith("running on w-1 for ")
    table = scene.run("runs", "list", "--live", "--job", "stop").stdout
    assert ("w-1" in table, "asked to stop: enough" in table) == (True, True)


# --- show


def test_the_story_of_a_run_that_was_dead_and_redriven(scene: Scene) -> None:
    run_id = scene.bury("story", 4, at_ms=DUE_MS + 1_010)
    common = {"tenant": "default", "times": Times(DUE_MS, DUE_MS, DUE_MS + 5, DUE_MS + 1_010)}
    dead = closed(
        run_id, "story", **common, state="dead", reason="max_attempts: HTTP 503", attempt=1, token=4,  # type: ignore[arg-type]
        target="handler:resize", worker="w-1", started_at="2026-01-24T18:00:00.010Z", attempts=ATTEMPTS,
    )  # fmt: skip
    again = {"tenant": "default", "times": Times(DUE_MS, DUE_MS, DUE_MS + 5, DUE_MS + 9_000)}
    done = closed(
        run_id, "story", **again, state="succeeded", attempt=1, token=5, target="handler:resize", worker="w-2",  # type: ignore[arg-type]
        queued_at="2026-01-24T18:00:07.500Z", started_at="2026-01-24T18:00:08.000Z",
    )  # fmt: skip
    key = run_id.encode()
    scene.write("executions", "story", Record(key, dead), Record(b"x", dead.replace(key, b"x")), Record(key, done))
    result = {"run_id": run_id, "job_id": "story", "result": {"pages": "x" * 2_000}}
    scene.write("results", "story", Record(b"story", orjson.dumps(result)))
    (told,) = scene.lines("runs", "show", run_id)
    attempts = told["attempts"]
    assert isinstance(attempts, list)
    assert [(each["token"], each["worker"], each["reason"]) for each in attempts] == [
        (4, "w-1", "max_attempts"), (5, "w-2", "succeeded"),
    ]  # fmt: skip
    assert (told["live"], told["results"], len(list(told["executions"]))) == (None, [result], 2)  # type: ignore[call-overload]
    shown = scene.run("runs", "show", run_id).stdout
    assert "end 1 (UTC)  2026-01-24T18:00:01.010Z  dead  max_attempts: HTTP 503" in shown
    assert "end 2 (UTC)  2026-01-24T18:00:09.000Z  succeeded" in shown
    assert "w-1                               2026-01-24T18:00:00.010Z  1 s   failed     HTTP 503" in shown
    assert "w-2     2026-01-24T18:00:07.500Z  2026-01-24T18:00:08Z      1 s   succeeded" in shown
    assert "x ... (2,012 characters)" in shown


def test_the_story_of_a_live_run_says_when_it_goes_again(scene: Scene) -> None:
    run = live(
        "waits", 4, RunState.RETRY_WAIT, attempt=1, token=4, history=ATTEMPTS[1:-1], reason="HTTP 503",
        not_before_ms=DUE_MS + (1 << 50),
    )  # fmt: skip
    scene.write("leases", "waits", lease(run))
    shown = scene.run("runs", "show", run.run_id).stdout
    assert "now        retry_wait for " in shown
    assert ", attempt 1, goes again in " in shown
    assert "w-1                   2026-01-24T18:00:00.010Z  1 s   failed   HTTP 503" in shown


def test_a_run_without_a_trace(scene: Scene) -> None:
    done = scene.run("runs", "show", "nothing:20260124T180000Z")
    assert (done.exit_code, "there is no trace of" in done.stderr) == (1, True)


# --- workers


def test_who_runs_what(kafka: RunningKafka) -> None:
    scene = Scene(kafka.bootstrap, "twork.")
    ensure_topics(scene.connection, scene.layout)
    assert scene.run("workers").stdout == "no worker has a run\n\nno live runs in any lane\n"

    def running(number: int, worker: str | None, lane: str) -> Run:
        granted_ms = DUE_MS + number * 1_000
        return live("busy", number, RunState.RUNNING, worker=worker, granted_ms=granted_ms, attempt=1, lane=lane)

    runs = [running(3, "w-2", "default"), running(2, "w-1", "default"), running(1, "w-1", "bulk")]
    runs += [running(4, None, "default"), live("busy", 5, RunState.QUEUED), live("busy", 6, RunState.PENDING)]
    runs += [
        live("busy", 7, RunState.PENDING, waits_for="busy:m1"),
        live("busy", 8, RunState.RETRY_WAIT, not_before_ms=5),
    ]
    runs += [live("busy", 9, RunState.PENDING, lane="", target="kafka://orders")]
    scene.write("leases", "busy", *map(lease, runs))
    (shown,) = scene.lines("workers")
    assert shown["workers"] == [
        {"worker": "w-1", "runs": 2, "oldest_ms": DUE_MS + 1_000, "lanes": ["bulk", "default"]},
        {"worker": "w-2", "runs": 1, "oldest_ms": DUE_MS + 3_000, "lanes": ["default"]},
    ]
    assert shown["lanes"] == [
        {"lane": "bulk", "ready": 0, "queued": 0, "running": 1, "open": 0, "waiting": 0},
        {"lane": "default", "ready": 1, "queued": 1, "running": 2, "open": 1, "waiting": 2},
    ]
    longest = shown["longest"]
    assert isinstance(longest, list)
    assert [each["worker"] for each in longest] == ["w-1", "w-1", "w-2", None]
    table = scene.run("workers").stdout
    assert "w-1     2     2026-01-24T18:00:01Z" in table
    assert "(its target)" in table
