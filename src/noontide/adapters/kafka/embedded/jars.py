"""The broker's jars: a pinned list, fetched once through jgo's Maven repositories, checked, and kept in a cache."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError

KAFKA_VERSION: Final = "4.3.1"
Progress = Callable[[int, int], None]

_LOCK_FILE: Final = "jars.lock"
_DOWNLOAD_THREADS: Final = 8
_DOWNLOAD_ATTEMPTS: Final = 3
_HTTP_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One line of the lock: Maven coordinates, the SHA-256 and the size in bytes of the file."""

    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def path(self) -> Path:
        """Where the jar lies below a Maven repository."""
        return Path(*self.group.split("."), self.artifact, self.version, f"{self.artifact}-{self.version}.jar")


def locked_jars(lock_file: str = _LOCK_FILE) -> tuple[Jar, ...]:
    """The pinned jars of one of the package's `*.lock` files, the broker's by default."""
    text = files(__package__).joinpath(lock_file).read_text("utf-8")
    return tuple(_parsed(line) for line in text.splitlines() if line and not line.startswith("#"))


def _parsed(line: str) -> Jar:
    coordinates, sha256, size = line.split()
    group, artifact, version = coordinates.split(":")
    return Jar(group=group, artifact=artifact, version=version, sha256=sha256, size_bytes=int(size))


def cache_folder() -> Path:
    """`NOONTIDE_CACHE_DIR`, else `noontide` below `XDG_CACHE_HOME` or `~/.cache`; always its `kafka` folder."""
    if chosen := os.environ.get("NOONTIDE_CACHE_DIR"):
        return Path(chosen).expanduser().absolute() / "kafka"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "noontide" / "kafka"


def print_progress(done: int, total: int) -> None:
    """Say on stderr how far the download is, in about ten lines."""
    step = max(1, total // 10)
    if done == total or done % step == 0:
        print(f"Kafka {KAFKA_VERSION}: {done} of {total} jars downloaded", file=sys.stderr, flush=True)


def classpath(
    *,
    cache_dir: Path | None = None,
    on_progress: Progress = print_progress,
    jars: Sequence[Jar] | None = None,
) -> str:
    """The class path of a broker; what is missing in the cache is downloaded.

    on_progress(done, total) is called per downloaded jar and not at all when everything is there.
    Raises EmbeddedKafkaError when a jar cannot be had, or is not the pinned one.
    """
    cache, wanted = cache_dir or cache_folder(), tuple(jars if jars is not None else locked_jars())
    if any(not _present(cache, jar) for jar in wanted):
        with _exclusive(cache):
            _download([jar for jar in wanted if not _present(cache, jar)], cache, on_progress)
    return os.pathsep.join(str(cache / jar.path) for jar in wanted)


def _present(cache: Path, jar: Jar) -> bool:
    """A jar is moved into the cache only after its hash was checked, so its size is enough from then on."""
    try:
        return (cache / jar.path).stat().st_size == jar.size_bytes
    except OSError:
        return False


@contextmanager
def _exclusive(cache: Path) -> Iterator[None]:
    """One process downloads; another one that wants the same jars waits and then finds them."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "download.lock").open("w")
    except OSError as error:
        raise EmbeddedKafkaError(f"cannot write the cache {cache}: {error.strerror}; set NOONTIDE_CACHE_DIR") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(missing: Sequence[Jar], cache: Path, on_progress: Progress) -> None:
    logging.getLogger("jgo").setLevel(logging.ERROR)  # the hash is checked here, against the lock
    with ThreadPoolExecutor(_DOWNLOAD_THREADS) as pool:
        fetches = [pool.submit(_fetch, jar, cache) for jar in missing]
        try:
            for done, fetch in enumerate(as_completed(fetches), start=1):
                fetch.result()
                on_progress(done, len(missing))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(jar: Jar, cache: Path) -> None:
    failure: Exception = OSError("not tried")
    for _ in range(_DOWNLOAD_ATTEMPTS):
        try:
            return _fetch_once(jar, cache)
        except (OSError, RuntimeError) as error:  # jgo raises requests' errors (an OSError) and RuntimeError
            failure = error
    raise _explained(jar, cache, failure) from failure


def _fetch_once(jar: Jar, cache: Path) -> None:
    """Download beside the cache, check, then move: a jar in the cache is whole, whatever is killed when."""
    incoming = cache / "incoming"
    (incoming / jar.path).unlink(missing_ok=True)
    downloaded = _artifact_path(jar, incoming)
    digest = hashlib.sha256(downloaded.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise RuntimeError(f"its SHA-256 is {digest}, pinned is {jar.sha256}")
    target = cache / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    downloaded.replace(target)


def _artifact_path(jar: Jar, repository: Path) -> Path:
    """Let jgo resolve one artifact: from the repositories of the user's jgo configuration, then from its default."""
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=repository, timeout=_HTTP_TIMEOUT_S)
    context.remote_repos = {**GlobalSettings.load().repositories, **context.remote_repos}
    return context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()


def _explained(jar: Jar, cache: Path, failure: Exception) -> EmbeddedKafkaError:
    name, reason = jar.path.name, " ".join(str(failure).split())[:200]
    if isinstance(failure, RuntimeError):
        return EmbeddedKafkaError(f"cannot get {name} for the Kafka broker: {reason}")
    if getattr(failure, "errno", None) is not None:
        return EmbeddedKafkaError(f"cannot write {name} below {cache}: {os.strerror(failure.errno or 0)}")  # type: ignore[attr-defined]
    return EmbeddedKafkaError(
        f"cannot download {name} for the Kafka broker, is the network up? ({reason}); "
        "or set NOONTIDE_KAFKA_BOOTSTRAP to a running Kafka"
    )
