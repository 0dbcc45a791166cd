"""`EmbeddedKafka`: a cluster of one or a few real brokers on a data folder."""

from __future__ import annotations

import atexit
import resource
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError, PortInUseError
from noontide.adapters.kafka.embedded.folder import DataFolder
from noontide.adapters.kafka.embedded.jars import Progress, classpath, print_progress
from noontide.adapters.kafka.embedded.java import find_java
from noontide.adapters.kafka.embedded.ports import HOST, is_free, wanted_ports
from noontide.adapters.kafka.embedded.process import BrokerProcess, format_storage, new_cluster_id
from noontide.adapters.kafka.embedded.readiness import nodes_seen_by
from noontide.adapters.kafka.embedded.settings import FAST_START, JVM_OPTIONS, Node, server_properties

FILE_DESCRIPTORS_MIN: Final = 1_024  # about 90 for an idle broker and two or three per partition
_STOP_GRACE_S: Final = 10.0
_POLL_S: Final = 0.05
_PORT_ATTEMPTS: Final = 3


@dataclass(eq=False, slots=True)
class EmbeddedKafka:
    """Real Kafka brokers (KRaft) as child processes of this one; `index` counts them from 0.

    data_dir: kept; a restart on it finds all records. One live process at a time may use it.
    port: of the first broker, the others follow; 0 takes the ports of the last start on this folder, or any.
    properties: broker settings, they win over ours.  fast_start: sooner up, slower when warm; for short tests.
    on_progress(done, total): called while jars are downloaded, the first time on a machine.

    Methods block; call them from a thread in async code. All raise EmbeddedKafkaError with one line that says why.
    The brokers end with `stop`, with the context, and with this process, however that ends.
    """

    data_dir: Path
    brokers: int = field(default=1, kw_only=True)
    port: int = field(default=0, kw_only=True)
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    fast_start: bool = field(default=False, kw_only=True)
    on_progress: Progress = field(default=print_progress, kw_only=True)

    _folder: DataFolder = field(init=False, repr=False)
    _java: list[str] = field(init=False, repr=False, default_factory=list)
    _ports: dict[str, int] = field(init=False, repr=False, default_factory=dict)
    _processes: dict[int, BrokerProcess] = field(init=False, repr=False, default_factory=dict)
    _paused: set[int] = field(init=False, repr=False, default_factory=set)

    def __post_init__(self) -> None:
        if self.brokers < 1:
            raise ValueError(f"brokers must be 1 or more, not {self.brokers}")
        self.data_dir = Path(self.data_dir).expanduser().absolute()
        self._folder = DataFolder(path=self.data_dir)

    @property
    def bootstrap(self) -> str:
        """`host:port` of every broker, comma separated; fixed from the first `start` on."""
        if not self._ports:
            raise EmbeddedKafkaError("the embedded Kafka has not been started")
        return ",".join(self._address(index) for index in range(self.brokers))

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each running broker by index."""
        return {index: process.pid for index, process in self._processes.items() if process.running}

    def log_path(self, index: int = 0) -> Path:
        """The log of a broker, for people."""
        return self._folder.broker(index).log

    def start(self, timeout_s: float = 60) -> Self:
        """Start all brokers and return when each of them sees all others; nothing is left running when it fails."""
        if self._processes:
            raise EmbeddedKafkaError("the embedded Kafka is already started")
        java = [find_java().executable, *JVM_OPTIONS, *([FAST_START] if self.fast_start else [])]
        self._java = [*java, "-cp", classpath(on_progress=self.on_progress)]
        _ensure_file_descriptors()
        self._folder.acquire()
        atexit.register(self.stop)
        try:
            self._end_orphans()
            self._launch_all(timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Shut all brokers down in order, those that take longer than 10 s for good, and release the folder."""
        for index in list(self._paused):
            self.resume(index)
        for process in self._processes.values():
            process.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + _STOP_GRACE_S
        for process in self._processes.values():
            if not process.ended_within(deadline_s - time.monotonic()):
                process.signal(signal.SIGKILL)
                process.ended_within(_STOP_GRACE_S)
        self._processes.clear()
        self._folder.release()
        atexit.unregister(self.stop)

    def kill(self, index: int = 0) -> None:
        """End one broker as a power cut of its process would (SIGKILL), and wait until it is gone."""
        process = self._processes.pop(index)
        self._paused.discard(index)
        process.signal(signal.SIGKILL)
        process.ended_within(_STOP_GRACE_S)

    def pause(self, index: int = 0) -> None:
        """Freeze one broker (SIGSTOP): its connections stay open and nothing answers."""
        self._processes[index].signal(signal.SIGSTOP)
        self._paused.add(index)

    def resume(self, index: int = 0) -> None:
        """Let a frozen broker go on (SIGCONT)."""
        self._processes[index].signal(signal.SIGCONT)
        self._paused.discard(index)

    def start_broker(self, index: int = 0, timeout_s: float = 60) -> None:
        """Start one broker that was killed or has ended, on its old port, and wait until it may be used."""
        if index in self.pids:
            raise EmbeddedKafkaError(f"broker {index} is running")
        if not is_free(port := self._ports[_broker(index)]):
            raise PortInUseError(port)
        self._launch(index)
        self._await_ready({index}, time.monotonic() + timeout_s)

    def check(self) -> None:
        """Raise when a broker has ended without being told to, with the reason from its log."""
        for process in self._processes.values():
            if not process.running:
                raise process.failure()

    def __enter__(self) -> Self:
        return self if self._processes else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _address(self, index: int) -> str:
        return f"{HOST}:{self._ports[_broker(index)]}"

    def _end_orphans(self) -> None:
        for index in range(self.brokers):
            self._folder.broker(index).end_orphan()

    def _launch_all(self, timeout_s: float) -> None:
        """Another process may take a free port before the broker does: with port 0 that means other ports."""
        deadline_s = time.monotonic() + timeout_s
        for attempt in range(_PORT_ATTEMPTS):
            self._choose_ports()
            try:
                for index in range(self.brokers):
                    self._launch(index)
                self._await_ready(set(range(self.brokers)), deadline_s)
            except PortInUseError:
                if self.port or attempt == _PORT_ATTEMPTS - 1:
                    raise
                for index in list(self._processes):
                    self.kill(index)
            else:
                return

    def _choose_ports(self) -> None:
        remembered = self._ports or self._folder.remembered_ports()
        outside = tuple(_broker(index) for index in range(self.brokers))
        inside = tuple(_controller(index) for index in range(self.brokers))
        self._ports = wanted_ports(first=self.port, names=outside, remembered=remembered)
        self._ports |= wanted_ports(first=0, names=inside, remembered=remembered)
        self._folder.remember_ports(self._ports)

    def _launch(self, index: int) -> None:
        folder, node = self._folder.broker(index), self._node(index)
        folder.prepare()
        folder.properties.write_text(server_properties(node))
        if not folder.formatted:
            once = [self._java[0], FAST_START, *self._java[1:]]
            format_storage(once, folder=folder, cluster_id=self._cluster_id(), alone=node.alone)
        self._processes[index] = BrokerProcess(self._java, folder=folder, port=node.ports[index])

    def _node(self, index: int) -> Node:
        return Node(
            index=index,
            ports=tuple(self._ports[_broker(each)] for each in range(self.brokers)),
            controller_ports=tuple(self._ports[_controller(each)] for each in range(self.brokers)),
            data=self._folder.broker(index).data,
            overrides=self.properties,
        )

    def _cluster_id(self) -> str:
        path = self.data_dir / "cluster.id"
        if not path.exists():
            path.write_text(new_cluster_id())
        return path.read_text()

    def _await_ready(self, waiting: set[int], deadline_s: float) -> None:
        while True:
            self.check()
            expected = {index + 1 for index in self.pids if index not in self._paused}
            waiting = {index for index in waiting if not expected <= nodes_seen_by(self._address(index))}
            if not waiting:
                return
            if time.monotonic() > deadline_s:
                late = min(waiting)
                raise EmbeddedKafkaError(f"Kafka broker {late} is not ready in time (log: {self.log_path(late)})")
            time.sleep(_POLL_S)


def _broker(index: int) -> str:
    return f"broker-{index + 1}"


def _controller(index: int) -> str:
    return f"controller-{index + 1}"


def _ensure_file_descriptors() -> None:
    """Raise the soft limit to the hard one, here and so for the brokers, and refuse to start with too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != hard:
        wanted = hard if hard != unlimited else max(soft, 1 << 16)
        with suppress(OSError, ValueError):  # macOS has a further limit of its own, see launchctl
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != unlimited and soft < FILE_DESCRIPTORS_MIN:
        raise EmbeddedKafkaError(
            f"too few file descriptors: the limit is {soft}, Kafka needs {FILE_DESCRIPTORS_MIN}; raise `ulimit -n`"
        )
