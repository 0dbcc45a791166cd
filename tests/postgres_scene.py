"""A PostgreSQL for tests, in a folder that its user may enter (pytest's own folders are closed to others)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noontide.adapters.postgres.server import EmbeddedPostgres


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="noontide-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server of its own with an empty database."""
    with open_folder() as folder, EmbeddedPostgres(folder / "postgres") as server:
        yield server
