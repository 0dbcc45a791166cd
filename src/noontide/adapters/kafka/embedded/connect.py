"""A Kafka Connect worker on this machine: a JVM with the JDBC sink on its plugin path, and a REST port."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import httpx
import orjson

from noontide.adapters.kafka.connect_rest import ConnectRest
from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError
from noontide.adapters.kafka.embedded.jars import Progress, cache_folder, classpath, locked_jars, print_progress
from noontide.adapters.kafka.embedded.java import find_java
from noontide.adapters.kafka.embedded.ports import HOST, wanted_ports
from noontide.adapters.kafka.embedded.settings import JVM_OPTIONS
from noontide.adapters.tied_process import TiedProcess

MAIN_CLASS: Final = "org.apache.kafka.connect.cli.ConnectStandalone"
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.1
_HEAP: Final = ("-Xms64m", "-Xmx384m")


@dataclass(eq=False, slots=True)
class EmbeddedConnect:
    """A standalone Connect worker as a child process, with the given connectors. A context that starts and stops it.

    data_dir: its files; a sink keeps its position in Kafka, so they may be deleted.
    connectors: configurations by name.  environment: what `${env:NAME}` in them stands for.
    Methods block. They raise EmbeddedKafkaError with one line that says why.
    """

    data_dir: Path
    bootstrap: str
    connectors: Mapping[str, Mapping[str, str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    on_progress: Progress = field(default=print_progress, kw_only=True)
    port: int = field(default=0, init=False)
    _process: TiedProcess | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """Its REST address."""
        return f"http://{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.running

    def start(self) -> Self:
        """Start it and return when its REST port answers."""
        self.data_dir = self.data_dir.expanduser().absolute()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        path = classpath(jars=locked_jars("connect.lock"), on_progress=self.on_progress)
        self._lay_out_plugin()
        self.port = wanted_ports(first=0, names=("rest",), remembered={})["rest"]
        properties = self.data_dir / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        java = [find_java().executable, *JVM_OPTIONS, *_HEAP, "-Duser.timezone=UTC", "-cp", path]
        command = [*java, MAIN_CLASS, str(properties), *self._write_connectors()]
        try:
            self._process = TiedProcess(command, log=self._log, environment=self.environment)
        except OSError as error:
            raise EmbeddedKafkaError(f"cannot start {command[0]}: {error.strerror}") from error
        self._await_ready()
        return self

    def stop(self) -> None:
        """Let it write what it has read, then end it."""
        process, self._process = self._process, None
        if process is None or not process.running:
            return
        process.signal(signal.SIGTERM)
        if not process.ended_within(_STOP_TIMEOUT_S):
            process.signal(signal.SIGKILL)
            process.ended_within(_STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self.data_dir / "connect.log"

    @property
    def _plugins(self) -> Path:
        return self.data_dir / "plugins"

    def _lay_out_plugin(self) -> None:
        """Connect wants the jars of a plugin in one folder."""
        jars = locked_jars("jdbc-sink.lock")
        paths = classpath(jars=jars, cache_dir=cache_folder(), on_progress=self.on_progress).split(os.pathsep)
        shutil.rmtree(self._plugins, ignore_errors=True)
        folder = self._plugins / "jdbc-sink"
        folder.mkdir(parents=True)
        for path in map(Path, paths):
            (folder / path.name).symlink_to(path)

    def _settings(self) -> dict[str, object]:
        json = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "bootstrap.servers": self.bootstrap,
            "listeners": f"HTTP://{HOST}:{self.port}",
            "plugin.path": self._plugins,
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": json,
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": self.data_dir / "offsets",
            "offset.flush.interval.ms": 1000,
            "consumer.isolation.level": "read_committed",
            "consumer.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.replication.factor": 1,
            "config.providers": "env",
            "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            "connector.client.config.override.policy": "All",
        }

    def _write_connectors(self) -> list[str]:
        paths = []
        for name, config in self.connectors.items():
            path = self.data_dir / f"{name}.json"
            path.write_bytes(orjson.dumps({"name": name, "config": config}))
            paths.append(str(path))
        return paths

    def _await_ready(self) -> None:
        rest = ConnectRest(self.url)
        for _ in range(int(_START_TIMEOUT_S / _POLL_S)):
            if self._process is None or not self._process.running:
                raise EmbeddedKafkaError(f"Kafka Connect ended (log: {self._log})")
            try:
                if set(self.connectors) <= set(rest.names()):
                    return
            except httpx.HTTPError:
                pass
            self._process.ended_within(_POLL_S)
        raise EmbeddedKafkaError(f"Kafka Connect is not ready in time (log: {self._log})")
