"""Limits, dependencies and calendars through the real broker: two slots, a worker, and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.conftest import RunningKafka
from tests.integration.installation import eventually
from tests.integration.worker_scene import Scene

from noontide.apps.cli.main import main
from noontide.ports.record_log import Incoming
from noontide.records.topics import Layout
from noontide.testing.permits_judge import leaked_permits, most_permits

CAP = 3


class Judged:
    """The topics of an installation, for the judge of permits."""

    def __init__(self, scene: Scene) -> None:
        self._installation = scene.installation

    @property
    def layout(self) -> Layout:
        """How topics are named and cut."""
        return self._installation.layout

    def records(self, topic: str) -> list[Incoming]:
        """All records so far."""
        return [
            Incoming(each.topic, each.partition, each.offset, each.at_ms, each.key, each.value, ())
            for each in self._installation.log(topic).look()
        ]


@pytest.fixture(scope="module")
def scene(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene.set(kafka.bootstrap, tmp_path_factory.mktemp("limits")) as scene:
        scheduler = scene.scheduler().start()
        scene.worker()
        scheduler.until_owner()
        yield scene
        scene.assert_each_once()


def invoke(scene: Scene, arguments: tuple[str, ...], *, exit_code: int) -> Result:
    """What a command says that ends so."""
    layout = scene.installation.layout
    variables = {"NOONTIDE_KAFKA_BOOTSTRAP": scene.installation.bootstrap, "NOONTIDE_PREFIX": layout.prefix}
    done = CliRunner().invoke(main, arguments, env={**variables, "COLUMNS": "200"})
    assert done.exit_code == exit_code, done.output
    return done


def command(scene: Scene, *arguments: str) -> str:
    """What a command says; it must succeed."""
    return invoke(scene, arguments, exit_code=0).stdout


def refusal(scene: Scene, *arguments: str) -> str:
    """What a command says that fails."""
    return invoke(scene, arguments, exit_code=1).stderr


def test_a_cap_holds_across_slots_while_the_scheduler_is_killed(scene: Scene, tmp_path: Path) -> None:
    gate = tmp_path / "go"
    scene.installation.configure("tenant/capped", {"concurrency_max": CAP})
    runs = [
        scene.define(f"capped-{number}", tenant="capped", payload={"until": str(gate), "seconds": 0.1}, lease="PT10S")
        for number in range(12)
    ]

    def shares() -> dict[str, object]:
        found = json.loads(command(scene, "tenants", "share", "capped", "--json"))["limiters"]
        return dict(found[0]) if found else {}

    eventually(lambda: (shares().get("running"), shares().get("waiting")) == (CAP, 12 - CAP), what="a full cap")
    assert shares()["given"] == CAP
    assert "3 at a time" in command(scene, "tenants", "share")
    scheduler = scene.processes[0]
    scheduler.kill()
    gate.touch()
    scheduler.start()
    assert {scene.closed(run)["state"] for run in runs} == {"succeeded"}
    topics = Judged(scene)
    eventually(lambda: leaked_permits(topics) == 0, what="all permits are back")
    assert most_permits(topics.records(topics.layout.name("leases")), "tenant/capped") == CAP


def test_a_chain_runs_in_order_and_again_by_command(scene: Scene) -> None:
    scene.installation.request("c", {"after": ["b"], "target": "handler:act"})
    scene.installation.request("b", {"after": ["a"], "target": "handler:act"})
    run = scene.define("a")
    suffix = run.partition(":")[2]
    assert [scene.closed(f"{job}:{suffix}")["state"] for job in "abc"] == ["succeeded"] * 3
    assert command(scene, "jobs", "graph", "b").splitlines() == ["a  [completed]", "└─ b", "   └─ c"]
    again = json.loads(command(scene, "runs", "rerun", f"b:{suffix}", "--subtree", "--json"))
    assert again["jobs"] == ["b", "c"]
    assert scene.closed(again["run_id"])["state"] == "succeeded"
    lines = scene.installation.log("executions")
    eventually(lambda: sum(each.document["job_id"] == "c" for each in lines.look()) == 2, what="a second run of c")
    assert {each.document["due"] for each in lines.look() if each.document["job_id"] == "c"} == {
        scene.closed(run)["due"]
    }


def test_a_cycle_is_refused_with_its_path_or_blocked(scene: Scene) -> None:
    for job, upstream in (("x", "y"), ("y", "z"), ("z", "x")):
        scene.installation.request(job, {"after": [upstream], "target": "handler:act"})

    def said() -> bool:
        rejected = any("cycle: " in str(each.document) for each in scene.installation.log("rejected").look())
        jobs = json.loads(command(scene, "jobs", "graph", "--json"))["jobs"]
        return rejected or any(str(job["reason"]).startswith("cycle: ") for job in jobs)

    eventually(said, what="somebody says that there is a cycle")


def test_a_calendar_from_a_file_moves_its_jobs(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "closed.ics"
    event = (
        "BEGIN:VEVENT\r\nUID:1\r\nDTSTART;VALUE=DATE:20200101\r\nRRULE:FREQ=YEARLY\r\nSUMMARY:New Year\r\nEND:VEVENT"
    )
    file.write_text(f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//t//t\r\n{event}\r\nEND:VCALENDAR\r\n")
    empty = tmp_path / "empty.json"
    empty.write_text('{"dates": []}')
    command(scene, "calendars", "put", "closed", str(empty))
    target = {"handler": "act"}
    document = {"schedule": "0 12 1 1 *", "target": target, "calendar": {"exclude": ["closed"]}, "timing": "exact"}
    scene.installation.request("yearly", {**document, "schedule": ["0 12 1 1 *", "0 12 2 1 *"]})
    jobs = scene.installation.log("state")
    eventually(lambda: jobs.latest("cursor/yearly") is not None, what="the job is there")
    (moved,) = [
        json.loads(line) for line in command(scene, "calendars", "diff", "closed", str(file), "--json").splitlines()
    ]
    assert moved["job_id"] == "yearly"
    assert (len(moved["gone"]), moved["new"]) == (1, [])
    assert "is set" in command(scene, "calendars", "put", "closed", str(file), "--only", "new year")

    def due() -> str:
        return command(scene, "jobs", "get", "yearly")

    eventually(lambda: "-01-02T12:00:00Z" in due(), what="the next occurrence has moved")
    assert "closed" in command(scene, "calendars", "list")
    days = command(scene, "calendars", "show", "closed")
    empty.write_text('{"dates": ["2026-13-01"]}')
    assert "2026-13-01 is not a date" in refusal(scene, "calendars", "put", "closed", str(empty))
    assert command(scene, "calendars", "show", "closed") == days
    changes = [each.document for each in scene.installation.log("audit").look()]
    assert sum(each["subject"] == "calendar/closed" for each in changes) == 2


def test_the_forecast_counts_what_workers_take(scene: Scene) -> None:
    scene.installation.request("half-hourly", {"schedule": {"every": "PT30M"}, "target": {"handler": "act"}})
    eventually(
        lambda: scene.installation.log("state").latest("cursor/half-hourly") is not None, what="the job is there"
    )
    found = json.loads(command(scene, "forecast", "--by", "lane", "--json"))
    assert found["totals"]["targets"]["handler:act"] in (47, 48)
    assert sum(found["series"]["default"]) == found["totals"]["targets"]["handler:act"]
