"""The jar cache: pinned, checked, whole, and clear about what went wrong."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import requests

from noontide.adapters.kafka.embedded import EmbeddedKafkaError, jars
from noontide.adapters.kafka.embedded.jars import Jar, cache_folder, classpath, locked_jars

CONTENT = b"not really a jar"


def a_jar(name: str = "thing", content: bytes = CONTENT) -> Jar:
    digest = hashlib.sha256(content).hexdigest()
    return Jar(group="org.example.deep", artifact=name, version="1.2", sha256=digest, size_bytes=len(content))


class Repository:
    """Stands in for the network below jgo: answers every GET with the same bytes and counts them."""

    def __init__(self, content: bytes) -> None:
        self.content, self.jar_requests = content, 0

    def request(self, method: str, url: str, **_: object) -> requests.Response:
        response = requests.Response()
        response.status_code = 404
        if url.endswith(".jar"):
            self.jar_requests += 1
            response.status_code = 200
            response._content, response._content_consumed = self.content, True
        return response


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    found = Repository(CONTENT)
    monkeypatch.setattr(requests, "request", found.request)
    return found


def test_the_lock_names_the_broker_and_all_it_needs_exactly_once() -> None:
    pinned = locked_jars()
    assert len(pinned) == 46
    assert len({(jar.group, jar.artifact) for jar in pinned}) == 46
    assert {jar.version for jar in pinned if jar.group == "org.apache.kafka"} == {jars.KAFKA_VERSION}
    assert all(len(jar.sha256) == 64 and jar.size_bytes > 1_000 for jar in pinned)


def test_path_of_a_jar_is_that_of_a_maven_repository() -> None:
    assert a_jar().path == Path("org/example/deep/thing/1.2/thing-1.2.jar")


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({"NOONTIDE_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a/kafka"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/noontide/kafka"),
        ({}, "/someone/.cache/noontide/kafka"),
    ],
)
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    monkeypatch.setenv("HOME", "/someone")
    for name in ("NOONTIDE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_missing_jars_are_downloaded_once_with_progress(tmp_path: Path, repository: Repository) -> None:
    seen: list[tuple[int, int]] = []
    wanted = [a_jar("one"), a_jar("two")]
    for _ in range(2):
        path = classpath(cache_dir=tmp_path, jars=wanted, on_progress=lambda done, total: seen.append((done, total)))
    assert [Path(each).read_bytes() for each in path.split(os.pathsep)] == [CONTENT, CONTENT]
    assert seen == [(1, 2), (2, 2)]
    assert repository.jar_requests == 2


def test_a_jar_cut_short_is_downloaded_again(tmp_path: Path, repository: Repository) -> None:
    cut = tmp_path / a_jar().path
    cut.parent.mkdir(parents=True)
    cut.write_bytes(CONTENT[:-1])
    classpath(cache_dir=tmp_path, jars=[a_jar()])
    assert cut.read_bytes() == CONTENT
    assert repository.jar_requests == 1


def test_other_bytes_than_the_pinned_ones_are_refused(tmp_path: Path, repository: Repository) -> None:
    repository.content = CONTENT.upper()  # the same size
    with pytest.raises(EmbeddedKafkaError, match=r"cannot get thing-1.2.jar .* its SHA-256 is \w{64}, pinned is"):
        classpath(cache_dir=tmp_path, jars=[a_jar()])
    assert not (tmp_path / a_jar().path).exists()


def test_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise requests.ConnectionError("Name or service\nnot known")

    monkeypatch.setattr(requests, "request", unreachable)
    with pytest.raises(EmbeddedKafkaError, match=r"is the network up\? \(Name or service not known\)") as caught:
        classpath(cache_dir=tmp_path, jars=[a_jar()])
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EmbeddedKafkaError, match=r"cannot write the cache .*file/kafka: .*NOONTIDE_CACHE_DIR"):
        classpath(cache_dir=tmp_path / "file" / "kafka", jars=[a_jar()])


def test_progress_is_about_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for done in range(1, 47):
        jars.print_progress(done, 46)
    lines = capsys.readouterr().err.splitlines()
    assert 10 <= len(lines) <= 12
    assert lines[-1] == "Kafka 4.3.1: 46 of 46 jars downloaded"
