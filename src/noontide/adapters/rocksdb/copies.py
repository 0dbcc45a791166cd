"""How far the copies on disk reach, for the division of slots: a note per slot, written when a copy is made durable.

A hint only. It lies inside the index's folder, so it goes when that goes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from noontide.ports.due_index import IndexFailed

log = logging.getLogger(__name__)

_NOTE = "REFLECTS"
_PROBE = "PROBE"
PROBE_BYTES: Final = 8 * 1024 * 1024


class LocalCopies:
    """The copies in one data folder; `folder_of` a slot is where its index lies."""

    def __init__(self, data: Path, slots: int) -> None:
        self._data = data
        self._known = {slot: found for slot in range(slots) if (found := _read(self.folder_of(slot) / _NOTE)) > 0}

    def folder_of(self, slot: int) -> Path:
        """Folder of a slot's index."""
        return self._data / f"slot-{slot}"

    def freshness(self) -> Mapping[int, int]:
        """Per slot the sum of the offsets that its copy reflects."""
        return self._known

    def note(self, slot: int, freshness: int) -> None:
        """Remember how much the copy of a slot reflects; a disk that refuses costs the hint only."""
        self._known[slot] = freshness
        try:
            (self.folder_of(slot) / _NOTE).write_text(str(freshness))
        except OSError as error:
            log.debug("not noted: %s", error)

    def probe(self) -> None:
        """Write a file and delete it. Raises IndexFailed when the disk does not take it."""
        path = self._data / _PROBE
        try:
            with path.open("wb") as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise IndexFailed(f"nothing can be written in {self._data}: {error}") from error
        finally:
            with suppress(OSError):
                path.unlink()


def _read(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
