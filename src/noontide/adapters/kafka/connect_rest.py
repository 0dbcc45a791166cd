"""The REST interface of Kafka Connect, as far as watching a sink needs it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from noontide.core.errors import NoontideError
from noontide.ports.record_log import TopicPartition

_TIMEOUT_S: Final = 10.0
_TRACE_MAX_CHARS: Final = 300
_ALTER_S: Final = 30.0
_STOP_LOOKS: Final = 100
_STOP_LOOK_S: Final = 0.1
_pause: Final = threading.Event()  # never set: waiting for it is a pause


class ConnectStuck(NoontideError):
    """Connect does not do what it said it would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorState:
    """What Connect says about a connector: RUNNING, PAUSED, FAILED, UNASSIGNED; `trace` is the first failure."""

    connector: str
    tasks: tuple[str, ...]
    trace: str

    @property
    def failed(self) -> bool:
        """Whether it, or a task of it, waits for a restart."""
        return "FAILED" in (self.connector, *self.tasks)

    @property
    def running(self) -> bool:
        """Whether it and its tasks run."""
        return bool(self.tasks) and {self.connector, *self.tasks} == {"RUNNING"}


class ConnectRest:
    """Blocking calls to a Connect worker. They raise httpx.HTTPError when it does not answer."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def names(self) -> list[str]:
        """The connectors it has."""
        answer = httpx.get(f"{self._url}/connectors", timeout=_TIMEOUT_S).raise_for_status()
        return [str(name) for name in answer.json()]

    def put(self, name: str, config: dict[str, str]) -> None:
        """Create a connector, or change it."""
        httpx.put(f"{self._url}/connectors/{name}/config", json=config, timeout=_TIMEOUT_S).raise_for_status()

    def state(self, name: str) -> ConnectorState | None:
        """None when there is no such connector."""
        answer = httpx.get(f"{self._url}/connectors/{name}/status", timeout=_TIMEOUT_S)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found = answer.raise_for_status().json()
        parts = [found["connector"], *found["tasks"]]
        traces = [part["trace"] for part in parts if part.get("trace")]
        return ConnectorState(
            connector=found["connector"]["state"],
            tasks=tuple(task["state"] for task in found["tasks"]),
            trace=_cause(traces[0]) if traces else "",
        )

    def restart_failed(self, name: str) -> None:
        """Start what has failed again; what runs goes on."""
        path = f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true"
        httpx.post(self._url + path, timeout=_TIMEOUT_S).raise_for_status()

    def stop(self, name: str) -> None:
        """Stop a connector, and wait until its tasks are gone. Raises ConnectStuck."""
        httpx.put(f"{self._url}/connectors/{name}/stop", timeout=_TIMEOUT_S).raise_for_status()
        for _ in range(_STOP_LOOKS):
            state = self.state(name)
            if state is not None and state.connector == "STOPPED" and not state.tasks:
                return
            _pause.wait(_STOP_LOOK_S)
        raise ConnectStuck(f"connector {name} does not stop")

    def resume(self, name: str) -> None:
        """Let it go on."""
        httpx.put(f"{self._url}/connectors/{name}/resume", timeout=_TIMEOUT_S).raise_for_status()

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """Where a sink goes on, by partition; one that it never committed is left out."""
        answer = httpx.get(f"{self._url}/connectors/{name}/offsets", timeout=_TIMEOUT_S).raise_for_status()
        found = ((each["partition"], each["offset"]) for each in answer.json()["offsets"])
        return {
            TopicPartition(at["kafka_topic"], int(at["kafka_partition"])): int(offset["kafka_offset"])
            for at, offset in found
        }

    def put_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a stopped sink go on elsewhere; partitions that are not named stay where they are."""
        listed = [
            {
                "partition": {"kafka_topic": at.topic, "kafka_partition": at.partition},
                "offset": {"kafka_offset": offset},
            }
            for at, offset in offsets.items()
        ]
        url = f"{self._url}/connectors/{name}/offsets"
        httpx.patch(url, json={"offsets": listed}, timeout=_ALTER_S).raise_for_status()


def _cause(trace: str) -> str:
    """The innermost cause of a Java stack trace, in one line."""
    causes = [line for line in trace.splitlines() if line.startswith("Caused by:")]
    return (causes or trace.splitlines() or [""])[-1].removeprefix("Caused by: ").strip()[:_TRACE_MAX_CHARS]
