"""The examples in Java, JavaScript and Go on a real broker: the right partition, and results of committed runs.

An example whose toolchain is not on the machine is skipped, and the reason says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.installation import Installation

from noontide.adapters.kafka.embedded.jars import classpath

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
BUILD_WITHIN_S = 240
RUN_WITHIN_S = 60
IDS = ("reminder-7", "tenant:4711@x.y")


def java(_folder: Path) -> list[str]:
    if not shutil.which("javac"):  # a runtime alone cannot run a source file
        pytest.skip("no Java development kit on the PATH")
    return ["java", "-cp", classpath(), str(EXAMPLES / "java" / "Noontide.java")]


def javascript(folder: Path) -> list[str]:
    if not shutil.which("npm"):
        pytest.skip("no npm on the PATH")
    shutil.copytree(EXAMPLES / "javascript", folder / "javascript")
    _build(["npm", "install", "--silent", "--no-audit", "--no-fund"], folder / "javascript")
    return ["node", str(folder / "javascript" / "noontide.mjs")]


def go(folder: Path) -> list[str]:
    if not shutil.which("go"):
        pytest.skip("no Go on the PATH")
    _build(["go", "build", "-o", str(folder / "noontide-go"), "."], EXAMPLES / "go")
    return [str(folder / "noontide-go")]


def _build(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("language", [java, javascript, go], ids=lambda language: language.__name__)
def test_an_example_defines_jobs_and_reads_results(
    kafka: RunningKafka, prefix: str, tmp_path: Path, language: Callable[[Path], list[str]]
) -> None:
    program = language(tmp_path)

    def run(*arguments: str) -> list[str]:
        done = subprocess.run(
            [*program, *arguments],
            capture_output=True,
            text=True,
            timeout=RUN_WITHIN_S,
            check=False,
            env=dict(os.environ),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with Installation.create(kafka.bootstrap, prefix, partitions=8) as installation:
        for job_id in IDS:
            (line,) = run("produce", installation.bootstrap, prefix, job_id)
            assert line == f"partition {installation.layout.partition_of(job_id)}"
            (record,) = installation.log("requests.public").of_key(job_id)
            assert record.headers["kind"] == b"define"
            assert record.document["target"] == "handler:send_report"
        value = {"run_id": "a:1", "job_id": "a", "result": {"sent": 3}}
        installation.produce(installation.name("results"), key=b"a", value=orjson.dumps(value), partition=0)
        (line,) = run("consume", installation.bootstrap, prefix, "1")
        key, _, text = line.partition(" ")
        assert (key, orjson.loads(text)) == ("a", value)
