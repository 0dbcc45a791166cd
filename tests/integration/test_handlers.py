"""Runs that workers carry out, from the definition to the line of history, with processes as people start them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.worker_scene import Scene


@pytest.fixture(scope="module")
def scene(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene.set(kafka.bootstrap, tmp_path_factory.mktemp("handlers")) as scene:
        scheduler = scene.scheduler().start()
        scene.worker()
        scheduler.until_owner()
        yield scene
        scene.assert_each_once()


@pytest.mark.parametrize("handler", ["act", "act_async"])
def test_a_run_is_started_once_and_its_result_is_published(scene: Scene, handler: str) -> None:
    run = scene.define(f"once-{handler}", handler=handler, payload={"text": "grüße"})
    line, result = scene.closed(run), scene.result(run)
    assert (line["state"], line["attempt"], line["token"]) == ("succeeded", 1, 1)
    assert str(line["worker"]).startswith("w-")
    assert result["result"] == {"attempt": 1, "said": "grüße"}
    assert [(each["attempt"], each["token"]) for each in scene.starts(run)] == [(1, 1)]
    assert scene.installation.log("leases").latest(run) is None


def test_an_attempt_that_fails_is_followed_by_another_after_its_wait(scene: Scene) -> None:
    run = scene.define("retried", payload={"fail_until": 3}, retry={"max_attempts": 4, "backoff": ["PT0.3S", "PT0.6S"]})
    line = scene.closed(run)
    assert (line["state"], line["attempt"], line["token"]) == ("succeeded", 3, 3)
    assert [each["error"] for each in orjson.loads(str(line["attempts"]))] == [
        "RuntimeError: attempt 1 fails",
        "RuntimeError: attempt 2 fails",
    ]
    first, second, third = (each.at_ms for each in scene.installation.log(scene.starts_topic).of_key(run, 3))
    assert second - first >= 300
    assert third - second >= 600
    assert scene.result(run)["result"] == {"attempt": 3, "said": None}


def test_a_run_without_further_attempts_is_dead_and_a_request_revives_it(scene: Scene) -> None:
    run = scene.define("exhausted", payload={"fail_until": 3}, retry={"max_attempts": 2, "backoff": ["PT0.1S"]})
    line = scene.closed(run)
    assert (line["state"], line["attempt"]) == ("dead", 2)
    (letter,) = scene.installation.log("dead-letters").of_key("exhausted")
    assert (letter.document["run_id"], letter.document["reason"]) == (run, "max_attempts")
    scene.installation.request("exhausted", {"run_id": run}, kind="redrive")
    lines = scene.installation.log("executions").of_key(run, 2)
    assert (lines[1].document["state"], lines[1].document["attempt"]) == ("succeeded", 1)
    assert [each["token"] for each in scene.starts(run, 3)] == [1, 2, 3]


def test_a_permanent_error_is_not_tried_again(scene: Scene) -> None:
    run = scene.define("permanent", payload={"permanent": True})
    line = scene.closed(run)
    (letter,) = scene.installation.log("dead-letters").of_key("permanent")
    assert (line["state"], line["attempt"]) == ("dead", 1)
    assert letter.document["reason"] == "permanent"
    assert "no such customer" in str(letter.document["error"])
    assert len(scene.starts(run)) == 1


def test_a_run_that_is_cancelled_stops_its_handler(scene: Scene, tmp_path: Path) -> None:
    run = scene.define("cancelled", payload={"until": str(tmp_path / "never")})
    scene.starts(run)
    scene.installation.request("cancelled", {"run_id": run, "reason": "not wanted"}, kind="cancel")
    line = scene.closed(run)
    assert (line["state"], line["reason"]) == ("cancelled", "not wanted")
    assert scene.result(run)["state"] == "cancelled"


@pytest.mark.parametrize("handler", ["act", "act_async"])
def test_an_attempt_beyond_its_timeout_is_over(scene: Scene, handler: str) -> None:
    run = scene.define(
        f"slow-{handler}", handler=handler, payload={"seconds": 20}, timeout="PT1S", retry={"max_attempts": 1}
    )
    line = scene.closed(run)
    assert (line["state"], line["attempt"]) == ("dead", 1)
    assert "timed out" in str(line["reason"])


def test_a_payload_of_the_largest_size_comes_through(scene: Scene) -> None:
    run = scene.define("large", payload={"text": "x" * 60_000})
    assert scene.result(run)["result"] == {"attempt": 1, "said": "x" * 60_000}
