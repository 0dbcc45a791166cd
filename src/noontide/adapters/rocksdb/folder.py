"""The folder of one index: who has it open, what format its rows have, and why it was emptied.

<path>/LOCK      held (flock) while an index is open
<path>/FORMAT    format id of the rows in db/
<path>/DAMAGED   present when a read met damaged data: the next opening starts empty
<path>/db/       RocksDB
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from noontide.ports.due_index import IndexFailed, IndexInUse


class IndexFolder:
    """Exclusive use of a folder from construction to `release`.

    Raises IndexInUse when somebody else holds it, IndexFailed when it cannot be created or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "db"
        self._format = path / "FORMAT"
        self._damaged = path / "DAMAGED"
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock_fd = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as failure:
            raise IndexFailed(f"index folder {path} cannot be used: {failure}") from failure
        self._lock()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            os.close(self._lock_fd)
            raise IndexInUse(f"index folder {self.path} is open in another process or object") from failure

    def release(self) -> None:
        """Let others open the folder; closing the descriptor drops the lock."""
        os.close(self._lock_fd)

    def reason_to_wipe(self, format_id: str) -> str | None:
        """Why the rows on disk must not be used, or None; an empty folder has nothing to wipe."""
        if not self.database.exists():
            return None
        if self._damaged.exists():
            return f"damaged: {self._damaged.read_text(errors='replace')}"
        found = self._format.read_text(errors="replace") if self._format.exists() else None
        if found is None:
            return "the format of the rows is not noted"
        if found != format_id:
            return f"the rows have format {found!r}, not {format_id!r}"
        if not (self.database / "CURRENT").exists():
            return "damaged: the database has no CURRENT file"
        return None

    def wipe(self) -> None:
        """Delete the database and its notes; FORMAT goes first, so that a crash half way ends in another wipe."""
        self._format.unlink(missing_ok=True)
        if self.database.exists():
            shutil.rmtree(self.database)
        self._damaged.unlink(missing_ok=True)

    def note_format(self, format_id: str) -> None:
        """Say what the rows written from now on look like."""
        fresh = self.path / "FORMAT.new"
        fresh.write_text(format_id)
        fresh.replace(self._format)

    def note_damage(self, reason: str) -> None:
        """Make the next opening start empty; a full disk may refuse the reason, then FORMAT goes instead."""
        try:
            self._damaged.write_text(reason)
        except OSError:
            self._format.unlink(missing_ok=True)
