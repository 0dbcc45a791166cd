"""Workers and schedulers that stop, freeze and die while runs are held: nothing is lost, nothing counts twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.worker_scene import Scene

from noontide.adapters.kafka.embedded import EmbeddedKafka

LEASE_MS = 3_000
SESSION_MS = 6_000
_SOON_NOTICED = {
    "group.share.min.session.timeout.ms": str(SESSION_MS),
    "group.share.session.timeout.ms": str(SESSION_MS),
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
}
"""As in production: by default brokers keep a killed member's records from the others for 45 s."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(folder, properties=_SOON_NOTICED, fast_start=True) as kafka:
        yield kafka.bootstrap


@pytest.fixture(scope="module")
def shared(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A scheduler that lives through all tests of workers; each test starts its own and ends them."""
    with Scene.set(bootstrap, tmp_path_factory.mktemp("faults")) as scene:
        scene.scheduler().start().until_owner()
        yield scene
        scene.assert_each_once()


@pytest.fixture
def scene(shared: Scene) -> Iterator[Scene]:
    yield shared
    for process in shared.processes[1:]:
        process.close()
    del shared.processes[1:]


@pytest.fixture
def alone(bootstrap: str, tmp_path: Path) -> Iterator[Scene]:
    """A scene for tests that end the scheduler."""
    with Scene.set(bootstrap, tmp_path) as scene:
        yield scene
        scene.assert_each_once()


def test_a_worker_that_is_told_to_stop_hands_back_what_does_not_end(scene: Scene, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = scene.worker("first", "--drain", "200ms")
    run = scene.define("handed-back", handler="act_async", payload={"until": str(gate)})
    scene.starts(run)
    second = scene.worker("second")
    assert first.terminate() == 0
    starts = scene.starts(run, 2)
    gate.touch()
    line = scene.closed(run)
    assert (line["state"], line["attempt"], line["token"]) == ("succeeded", 1, 2)
    assert [each["pid"] for each in starts] == [first.pid, second.pid]


def test_a_worker_that_is_told_to_stop_finishes_what_ends_in_time(scene: Scene, tmp_path: Path) -> None:
    worker = scene.worker("finishing")
    gate = tmp_path / "gate"
    run = scene.define("finished", payload={"until": str(gate)})
    scene.starts(run)
    gate.touch()
    assert worker.terminate() == 0
    assert scene.closed(run)["state"] == "succeeded"
    assert len(scene.starts(run)) == 1


def test_what_a_killed_worker_held_starts_again_when_its_lease_is_over_unless_once_is_all(
    scene: Scene, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    first = scene.worker("killed")
    run = scene.define("killed", payload={"until": str(gate)})
    once = scene.define("once", payload={"until": str(gate)}, guarantee="at_most_once", retry={"max_attempts": 1})
    scene.starts(run)
    scene.starts(once)
    first.kill()
    killed_ms = time.time_ns() // 1_000_000
    second = scene.worker("heir")
    starts = scene.installation.log(scene.starts_topic).of_key(run, 2)
    gate.touch()
    line, dead = scene.closed(run), scene.closed(once)
    assert [each.document["pid"] for each in starts] == [first.pid, second.pid]
    assert [each.document["token"] for each in starts] == [1, 2]
    assert LEASE_MS * 2 // 3 - 1_000 < starts[1].at_ms - killed_ms < LEASE_MS + SESSION_MS + 5_000
    assert (line["state"], line["attempt"]) == ("succeeded", 2)
    assert "lease_lost" in str(line["attempts"])
    assert (dead["state"], dead["attempt"]) == ("dead", 1)
    assert str(dead["reason"]).startswith("outcome unknown")
    (letter,) = scene.installation.log("dead-letters").of_key("once")
    assert letter.document["reason"] == "outcome unknown"
    assert len(scene.starts(once)) == 1


def test_a_worker_that_wakes_up_after_its_lease_is_refused(scene: Scene, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    frozen = scene.worker("frozen")
    run = scene.define("frozen", payload={"until": str(gate)})
    scene.starts(run)
    frozen.freeze()
    scene.worker("awake", "--group", "others")  # its own group gets the run as soon as the lease is over
    scene.starts(run, 2)
    gate.touch()
    line = scene.closed(run)
    frozen.thaw()  # its handler sees the gate at once, and its end is on the way
    later = scene.define("after-frozen")
    scene.closed(later)
    scene.await_ends(run, 2)
    assert (line["state"], line["token"]) == ("succeeded", 2)
    assert [each.document["token"] for each in scene.installation.log("executions").of_key(run)] == [2]
    assert scene.result(run)["token"] == 2


@pytest.mark.parametrize("protocol", ["share", "classic"])
def test_two_workers_share_the_runs(scene: Scene, tmp_path: Path, protocol: str) -> None:
    options = ["--concurrency", "4", "--prefetch", "0", "--group-protocol", protocol, "--group", protocol]
    first, second = (scene.worker(f"{protocol}-{number}", *options) for number in (1, 2))
    gate = tmp_path / "gate"
    runs = [scene.define(f"{protocol}-shared-{number}", payload={"until": str(gate)}) for number in range(8)]
    pids = {scene.starts(run)[0]["pid"] for run in runs}  # none ends before all have started
    gate.touch()
    assert {str(scene.closed(run)["state"]) for run in runs} == {"succeeded"}
    assert pids == {first.pid, second.pid}


@pytest.mark.slow
def test_a_scheduler_that_dies_while_runs_are_held_expires_none(alone: Scene, tmp_path: Path) -> None:
    scheduler = alone.scheduler(group="first").start().until_owner()
    alone.worker()
    gate = tmp_path / "gate"
    runs = [alone.define(f"held-{number}", payload={"until": str(gate)}) for number in range(10)]
    for run in runs:
        alone.starts(run)
    scheduler.kill()
    scheduler.group = "second"
    scheduler.start().until_owner()
    lived_through(alone, LEASE_MS)
    gate.touch()
    lines = [alone.closed(run) for run in runs]
    assert {(str(line["state"]), line["attempt"], line["token"]) for line in lines} == {("succeeded", 1, 1)}


def lived_through(scene: Scene, duration_ms: int) -> None:
    """Wait until the owners have heard heartbeats appended over a whole duration from now on."""
    log = scene.installation.log("worker-events.default")
    began_ms = time.time_ns() // 1_000_000
    log.until(
        lambda found: any(each.at_ms > began_ms + duration_ms for each in found),
        within_s=20 + duration_ms / 1000,
        what="heartbeats go on",
    )


def absent(scene: Scene, tmp_path: Path, *, away_s: float) -> None:
    """A scheduler that is away for longer than the leases are: the live worker keeps what it holds."""
    scheduler = scene.scheduler(group="first").start().until_owner()
    scene.worker()
    gate = tmp_path / "gate"
    runs = [scene.define(f"kept-{number}", payload={"until": str(gate)}) for number in range(10)]
    finished = scene.define("ended-meanwhile", payload={"seconds": 1})
    for run in (*runs, finished):
        scene.starts(run)
    scheduler.kill()
    lived_through(scene, int(away_s * 1000))
    scheduler.group = "second"
    scheduler.start().until_owner()
    lived_through(scene, LEASE_MS)
    gate.touch()
    lines = [scene.closed(run) for run in (*runs, finished)]
    assert {(str(line["state"]), line["attempt"], line["token"]) for line in lines} == {("succeeded", 1, 1)}


def test_a_scheduler_that_is_away_for_longer_than_leases_expires_none(alone: Scene, tmp_path: Path) -> None:
    absent(alone, tmp_path, away_s=1.5 * LEASE_MS / 1000)


@pytest.mark.slow
def test_a_scheduler_that_is_away_for_twenty_seconds_expires_none(alone: Scene, tmp_path: Path) -> None:
    absent(alone, tmp_path, away_s=20)
