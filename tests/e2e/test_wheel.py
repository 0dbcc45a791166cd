"""The built wheel, installed outside the checkout, has all that it needs: topics, sinks, the page, examples."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from noontide.testing.child_process import ChildProcess, noontide

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
CHECKOUT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(CHECKOUT)], check=True)
    (wheel,) = folder.glob("noontide-*.whl")
    subprocess.run([*PIP, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """A command of the installed copy, in an empty folder; what it prints."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("NOONTIDE_")}
    done = subprocess.run(
        noontide(*arguments),
        cwd=folder, env={**own, "PYTHONPATH": str(installed)}, check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_runs_on_dev_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = "import noontide; print(noontide.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.startswith(str(installed))
    dev = ChildProcess(
        command=noontide("dev", "--data", str(tmp_path / "data"), "--port", "0"),
        log=tmp_path / "dev.log", variables={"PYTHONPATH": str(installed)},
    )  # fmt: skip
    with dev.start():
        dev.until_logged("Kafka is at")
        found_at = re.search(r"Kafka is at (\S+);", dev.log.read_text("utf-8"))
        assert found_at is not None
        at = ("--bootstrap", found_at[1])
        run(
            installed,
            tmp_path,
            "jobs",
            "add",
            "--id",
            "tick",
            "--every",
            "1s",
            "--topic",
            "ticks",
            "--create-topic",
            *at,
        )
        lines = run(installed, tmp_path, "runs", "watch", "--count", "2", "--json", *at).splitlines()
    assert [json.loads(line)["job_id"] for line in lines] == ["tick", "tick"]
