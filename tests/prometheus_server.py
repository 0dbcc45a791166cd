"""A real Prometheus for tests: the one on the PATH, else that of Debian's package, unpacked beside the other caches."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from noontide.adapters.kafka.embedded.jars import cache_folder
from noontide.adapters.kafka.embedded.ports import wanted_ports

START_WITHIN_S = 20
DOWNLOAD_WITHIN_S = 120


def find_prometheus() -> str:
    """The program; the test is skipped, with the reason, where none can be had."""
    unpacked = cache_folder().parent / "prometheus" / "usr" / "bin" / "prometheus"
    found = shutil.which("prometheus") or (str(unpacked) if unpacked.exists() else None)
    if found is None and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        found = _unpack(unpacked)
    if found is None:
        pytest.skip("no Prometheus: it is not on the PATH, and Debian's package cannot be had here")
    return found


def _unpack(program: Path) -> str | None:
    """Debian's package without installing it: nothing is started, nothing outside the cache is written."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for command in (
            ["apt-get", "download", "prometheus"],
            ["apt-get", "update"],
            ["apt-get", "download", "prometheus"],
        ):
            subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=DOWNLOAD_WITHIN_S)
            if packages := list(Path(folder).glob("*.deb")):
                root = program.parents[2]
                subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(root)], check=True, timeout=DOWNLOAD_WITHIN_S)
                return str(program)
    return None


class Prometheus:
    """A server that answers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, text: str) -> list[dict[str, object]]:
        """The result of an instant query."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": text}, timeout=10).json()
        assert answer["status"] == "success", (text, answer)
        return list(answer["data"]["result"])

    def rules(self) -> list[dict[str, object]]:
        """The alert rules it has loaded."""
        groups = httpx.get(f"{self.url}/api/v1/rules", timeout=10).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@contextmanager
def prometheus(targets: Sequence[str], *, rules: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the targets every second and evaluates the rules."""
    program = find_prometheus()
    port = wanted_ports(first=0, names=("prometheus",), remembered={})["prometheus"]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "prometheus.yml"
        listed = ", ".join(f'"{target}"' for target in targets)
        config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{rules}]\n"
            f"scrape_configs: [{{job_name: noontide, static_configs: [{{targets: [{listed}]}}]}}]\n"
        )
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
        log = (Path(folder) / "log").open("wb")
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, env=dict(os.environ)
        )
        try:
            found = Prometheus(f"http://127.0.0.1:{port}")
            _await_ready(found.url, process, Path(folder) / "log")
            yield found
        finally:
            process.terminate()
            process.wait(20)
            log.close()


def _await_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_WITHIN_S
    while True:
        try:
            if httpx.get(f"{url}/-/ready", timeout=1).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.05)
