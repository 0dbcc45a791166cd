"""The REST interface of Kafka Connect, as far as watching a sink needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import httpx

_TIMEOUT_S: Final = 10.0
_TRACE_MAX_CHARS: Final = 300


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


def _cause(trace: str) -> str:
    """The innermost cause of a Java stack trace, in one line."""
    causes = [line for line in trace.splitlines() if line.startswith("Caused by:")]
    return (causes or trace.splitlines() or [""])[-1].removeprefix("Caused by: ").strip()[:_TRACE_MAX_CHARS]
