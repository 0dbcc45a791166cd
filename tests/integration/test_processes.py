"""Several scheduler processes under one parent, and what `noontide partitions` says of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from tests.conftest import RunningKafka
from tests.integration.installation import Installation, eventually

from noontide.apps.cli.main import main
from noontide.testing.child_process import ChildProcess, noontide


@pytest.fixture
def installation(kafka: RunningKafka, prefix: str) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, prefix, partitions=8, slots=4) as made:
        yield made


def slots(installation: Installation) -> list[dict[str, object]]:
    """What `noontide partitions --json` says."""
    arguments = ["partitions", "--json", "--bootstrap", installation.bootstrap, "--prefix", installation.layout.prefix]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def owners(installation: Installation) -> dict[str, int]:
    """How many slots each process works on."""
    found: dict[str, int] = {}
    for slot in slots(installation):
        owner = slot["owner"]
        if isinstance(owner, dict) and owner["phase"] == "working":
            found[owner["process"]] = found.get(owner["process"], 0) + 1
    return found


def warm_standbys(installation: Installation) -> int:
    """How many slots have a warm standby that is not their owner."""
    count = 0
    for slot in slots(installation):
        owner, standbys = slot["owner"], slot["standbys"]
        assert isinstance(standbys, list)
        if isinstance(owner, dict):
            count += any(each["phase"] == "warm" and each["process"] != owner["process"] for each in standbys)
    return count


def test_two_processes_under_one_parent(installation: Installation, tmp_path: Path) -> None:
    arguments = ("--bootstrap", installation.bootstrap, "--prefix", installation.layout.prefix)
    command = noontide("scheduler", *arguments, "--data", str(tmp_path / "data"), "--processes", "2")
    with ChildProcess(command=command, log=tmp_path / "log") as parent:
        assert [slot["owner"] for slot in slots(installation)] == [None] * 4
        parent.start()
        eventually(lambda: sorted(owners(installation).values()) == [2, 2], what="two slots each")
        eventually(lambda: warm_standbys(installation) == 4, what="a warm standby each")
        table = CliRunner().invoke(main, ["partitions", *arguments]).output
        assert table.count("working") == table.count("(warm") == 4, table
        assert sorted(each.name for each in (tmp_path / "data").iterdir()) == ["process-0", "process-1"]

        children = psutil.Process(parent.pid).children()
        assert len(children) == 2
        os.kill(children[0].pid, signal.SIGKILL)
        parent.until_logged("ended with -9; starting another one")
        eventually(lambda: len(psutil.Process(parent.pid).children()) == 2, what="another child")

        left = psutil.Process(parent.pid).children()
        parent.kill()
        assert psutil.wait_procs(left, timeout=20)[1] == [], "children outlived their parent"


def test_a_signal_reaches_all_processes(installation: Installation, tmp_path: Path) -> None:
    arguments = ("--bootstrap", installation.bootstrap, "--prefix", installation.layout.prefix)
    command = noontide("scheduler", *arguments, "--data", str(tmp_path / "data"), "--processes", "2")
    with ChildProcess(command=command, log=tmp_path / "log") as parent:
        parent.start().until_logged("owned after", count=4)
        assert parent.terminate() == 0


def test_what_cannot_start_is_not_started_again_and_again(prefix: str, kafka: RunningKafka, tmp_path: Path) -> None:
    arguments = ("--bootstrap", kafka.bootstrap, "--prefix", prefix, "--data", str(tmp_path / "data"))
    with ChildProcess(command=noontide("scheduler", *arguments, "--processes", "2"), log=tmp_path / "log") as parent:
        parent.start().until_logged("giving up")
        eventually(lambda: not parent.running, what="its end")
        assert parent.terminate() == 1
        assert "topics apply" in parent.text
