"""A scheduler that the network cuts off from Kafka: others take over, and it does no harm when it is back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.expectations import IntervalJob, instant_ms, judge
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess
from tests.integration.test_disk import slots_of

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.embedded.ports import HOST, wanted_ports
from noontide.testing.checker import check

ANCHOR = "2026-01-01T00:00:00Z"
JOBS = [IntervalJob(job_id=f"cut-{number}", every_ms=1000, anchor_ms=instant_ms(ANCHOR)) for number in range(40)]
EVERY = {"schedule": {"every": "PT1S", "anchor": ANCHOR}, "timing": "exact", "misfire": "run_all"}


@dataclass(slots=True)
class Line:
    """A line to a broker that can be cut: connections stay open, and nothing gets through until it is mended.

    What was sent meanwhile arrives then, as it does after a partition of a network.
    """

    port: int
    behind: int
    whole: threading.Event = field(default_factory=threading.Event)
    _listener: socket.socket = field(init=False)
    _ends: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Line:
        self.whole.set()
        self._listener = socket.create_server((HOST, self.port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.whole.set()
        for each in (self._listener, *self._ends):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((HOST, self.behind))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(65_536):
                self.whole.wait()
                sink.sendall(received)
        with suppress(OSError):
            self.whole.wait()
            sink.shutdown(socket.SHUT_WR)


class Place(NamedTuple):
    """A broker with two addresses: one straight, one through a line."""

    installation: Installation
    line: Line
    through_line: str


@contextmanager
def broker_behind_a_line(folder: Path, prefix: str) -> Iterator[Place]:
    ports = wanted_ports(first=0, names=("plain", "behind", "controller", "line"), remembered={})
    plain, behind = f"PLAINTEXT://{HOST}:{ports['plain']}", f"LINE://{HOST}:{ports['behind']}"
    properties = {
        "listeners": f"{plain},{behind},CONTROLLER://{HOST}:{ports['controller']}",
        "advertised.listeners": f"{plain},LINE://{HOST}:{ports['line']}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{ports['controller']}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with (
        EmbeddedKafka(folder / "kafka", port=ports["plain"], properties=properties, fast_start=True) as kafka,
        Line(ports["line"], ports["behind"]) as line,
        Installation.create(kafka.bootstrap, prefix, partitions=8, slots=2) as installation,
    ):
        yield Place(installation, line, f"{HOST}:{ports['line']}")


@pytest.mark.slow
@pytest.mark.parametrize("cut_s", [3, 20])
def test_a_scheduler_that_is_cut_off_does_no_harm(tmp_path: Path, prefix: str, cut_s: int) -> None:
    with (
        broker_behind_a_line(tmp_path, prefix) as (installation, line, address),
        SchedulerProcess(installation, tmp_path / "a", bootstrap=address) as a,
        SchedulerProcess(installation, tmp_path / "b") as b,
    ):
        topic = installation.create_target("orders")
        a.start().until_owner()
        installation.request_many({job.job_id: {**EVERY, "target": f"kafka://{topic}"} for job in JOBS})
        b.start()
        eventually(lambda: len(slots_of(a, installation)) == len(slots_of(b, installation)) == 1, what="one slot each")
        line.whole.clear()
        if cut_s > 10:  # longer than the session
            eventually(lambda: len(slots_of(b, installation)) == 2, what="b has the slots of a")
        time.sleep(cut_s)
        line.whole.set()
        eventually(lambda: len(slots_of(a, installation)) == len(slots_of(b, installation)) == 1, what="a is back")
        until_ms = time.time_ns() // 1_000_000
        eventually(lambda: not judge(installation, topic, JOBS, until_ms=until_ms).missing, what="all occurrences")
        found = judge(installation, topic, JOBS, until_ms=until_ms)
        assert found.is_clean, found
        assert check(KafkaConnection(installation.bootstrap), installation.layout, until_ms=until_ms).ok
        assert a.terminate() == b.terminate() == 0
