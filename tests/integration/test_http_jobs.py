"""Jobs whose target is a server: the worker asks it, obeys its Retry-After, and its answer becomes the result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.conftest import RunningKafka
from tests.integration.expectations import instant_ms
from tests.integration.worker_scene import Scene


@dataclass
class Target:
    """A server that answers by path, and what it was asked: (path, headers, body), and by how many connections."""

    url: str = ""
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: set[object] = field(default_factory=set)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    target = Target()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            target.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            target.connections.add(self.client_address)
            before = sum(path == self.path for path, _, _ in target.asked)
            if self.path == "/busy" and before == 1:
                self._answer(503, b'"busy"', {"Retry-After": "1"})
            elif self.path == "/gone":
                self._answer(404, b'"nothing here"', {})
            else:
                self._answer(200, b'{"times": %d}' % before, {})

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            plain = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            for name, value in {**headers, **plain}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    target.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield target
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def scene(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene.set(kafka.bootstrap, tmp_path_factory.mktemp("http")) as scene:
        scheduler = scene.scheduler().start()
        scene.worker("worker", "--allow-loopback")
        scheduler.until_owner()
        yield scene
        scene.assert_each_once()


def test_an_answer_is_the_result(scene: Scene, target: Target) -> None:
    run = scene.define("asked", target=f"{target.url}/plain", payload={"order": 4711})
    assert scene.closed(run)["state"] == "succeeded"
    assert scene.result(run)["result"] == {"times": 1}
    ((_, headers, body),) = (each for each in target.asked if each[0] == "/plain")
    assert body == b'{"order":4711}'
    assert headers["idempotency-key"] == run


def test_a_busy_server_is_asked_again_when_it_says(scene: Scene, target: Target) -> None:
    run = scene.define("busy", target=f"{target.url}/busy", payload={})
    line = scene.closed(run)
    assert (line["state"], line["attempt"]) == ("succeeded", 2)
    first, second = (headers for path, headers, _ in target.asked if path == "/busy")
    assert first["idempotency-key"] == second["idempotency-key"] == run
    assert instant_ms(line["ended_at"]) - instant_ms(line["claimed_at"]) >= 1_000


def test_a_server_that_knows_nothing_of_it_is_not_asked_again(scene: Scene, target: Target) -> None:
    run = scene.define("gone", target=f"{target.url}/gone", payload={})
    line = scene.closed(run)
    assert (line["state"], line["attempt"]) == ("dead", 1)
    assert "404" in str(line["reason"])
    assert sum(path == "/gone" for path, _, _ in target.asked) == 1


@pytest.mark.slow
def test_a_server_on_the_workers_own_machine_is_refused_unless_it_is_allowed(scene: Scene, target: Target) -> None:
    asked = len(target.asked)
    scene.worker("strict", "--lane", "bulk")
    run = scene.define("refused", target=f"{target.url}/plain", payload={}, lane="bulk")
    line = scene.closed(run)
    assert (line["state"], line["attempt"]) == ("dead", 1)
    assert len(target.asked) == asked
