"""`DueIndex` on RocksDB: one column family, no write-ahead log, whole batches in order.

With one column family and the log off, memtables reach disk in the order of writing and a batch never spans two of
them: after kill -9 the rows on disk are those of a prefix of the batches, each whole. The offsets a batch reflects are
rows of that batch, so whoever opens the index knows where to go on reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import cast

from rocksdict import DbClosedError, Rdict, ReadOptions, WriteBatch

from noontide.adapters.rocksdb.folder import IndexFolder
from noontide.adapters.rocksdb.options import (
    MEMTABLE_RANGE_DELETES_MAX,
    MIB,
    SharedMemory,
    database_options,
    reading_below,
    without_wal,
)
from noontide.ports.due_index import IndexBatch, IndexClosed, IndexFailed

# What rocksdict takes as a key; in raw mode only bytes.
_LibraryKey = str | int | float | bytes | bool

# A range of at most this many rows is deleted row by row: range deletes slow down all reads of their memtable.
ROW_BY_ROW_DELETES_MAX = 64


class RocksIndex:
    """The rows of one slot in a folder of its own.

    format_id names the layout of the rows. Another one in the folder, or damage found at opening or by an earlier
    reader, empties the index: then `was_wiped` is true and `wiped_because` says why. shared: memory common to the
    indexes of the process; None gives this index 8 MiB of cache and 8 MiB of write buffers. A wipe that follows
    damage is the only repair; the log refills the rows. on_failure: called, in any thread, when the disk fails.

    Raises IndexInUse (folder open elsewhere), IndexFailed (disk full, permissions, damage met while reading) and
    IndexClosed (call after `close`). A write that raises leaves nothing of its batch.
    """

    def __init__(
        self,
        path: Path,
        *,
        format_id: str,
        shared: SharedMemory | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_failure = on_failure
        self._shared = shared or SharedMemory(block_cache_bytes=8 * MIB, write_buffers_bytes=8 * MIB)
        self._format_id = format_id
        self._write_options = without_wal()
        self.wiped_because: str | None = None
        self._folder = IndexFolder(path)
        try:
            self._db = self._open()
        except BaseException:
            self._folder.release()
            raise
        self._is_open = True

    @property
    def was_wiped(self) -> bool:
        """Rows were thrown away at opening: read the log from its start."""
        return self.wiped_because is not None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of the keys; the database sorts them for reading itself, sorting here gains nothing."""
        try:
            return cast("list[bytes | None]", self._db.get(cast("list[_LibraryKey]", list(keys))))
        except Exception as failure:
            raise self._failed("read", failure) from failure

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows with start <= key < stop, ascending; 2 us per row of 1 KB, less for a deleted one."""
        below_stop = reading_below(stop)
        try:
            found = self._db.items(from_key=start, read_opt=below_stop)
            if limit <= 0 or start >= stop:
                return []
            rows = cast("list[tuple[bytes, bytes]]", list(islice(found, limit)))
            if len(rows) < limit:
                self._confirm_end(rows[-1][0] if rows else None, start, below_stop)
        except IndexFailed:
            raise
        except Exception as failure:
            raise self._failed("scan", failure) from failure
        return rows

    def _confirm_end(self, last_key: bytes | None, start: bytes, below_stop: ReadOptions) -> None:
        """Tell the end of the rows from a read error: `items()` ends silently at both, a cursor's status does not."""
        cursor = self._db.iter(below_stop)
        cursor.seek(start if last_key is None else last_key)
        if last_key is not None and cursor.valid():
            cursor.next()
        cursor.status()
        if cursor.valid():
            raise IndexFailed(f"scan of {self._folder.path} ended before its last row")

    def write(self, batch: IndexBatch) -> None:
        """Apply the range deletes, then the puts, as one atomic batch."""
        changes = WriteBatch(raw_mode=True)
        try:
            for start, stop in batch.deleted_ranges:
                self._delete_range(changes, start, stop)
            for key, value in batch.puts.items():
                if value is None:
                    changes.delete(key)
                else:
                    changes[key] = value
            self._db.write(changes, self._write_options)
        except IndexFailed:
            raise
        except Exception as failure:
            raise self._failed("write", failure) from failure

    def _delete_range(self, changes: WriteBatch, start: bytes, stop: bytes) -> None:
        if start >= stop:
            return
        below_stop = reading_below(stop)
        found = self._db.keys(from_key=start, read_opt=below_stop)
        keys = cast("list[bytes]", list(islice(found, ROW_BY_ROW_DELETES_MAX + 1)))
        if len(keys) > ROW_BY_ROW_DELETES_MAX:
            changes.delete_range(start, stop)
            return
        self._confirm_end(keys[-1] if keys else None, start, below_stop)
        for key in keys:
            changes.delete(key)

    def checkpoint(self) -> None:
        """Flush the memtable and wait: what was written so far survives kill -9."""
        try:
            self._db.flush(wait=True)
        except Exception as failure:
            raise self._failed("flush", failure) from failure

    def wipe(self) -> None:
        """Delete every row by starting a new database in the folder."""
        self._require_open("wipe")
        _close(self._db)
        try:
            self._db = self._open_empty()
        except BaseException:
            self._is_open = False
            self._folder.release()
            raise

    def close(self) -> None:
        """Flush, close and unlock the folder; again is allowed. Raises IndexFailed, closed, if the flush failed."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self.checkpoint()
        finally:
            _close(self._db)
            self._folder.release()

    def _open(self) -> Rdict:
        reason = self._folder.reason_to_wipe(self._format_id)
        if reason is None:
            try:
                return self._connect()
            except Exception as failure:
                if not _is_damage(failure):
                    raise self._failed("open", failure) from failure
                reason = f"damaged: {failure}"
        self.wiped_because = reason
        return self._open_empty()

    def _open_empty(self) -> Rdict:
        try:
            self._folder.wipe()
            return self._connect()
        except Exception as failure:
            raise self._failed("open", failure) from failure

    def _connect(self) -> Rdict:
        options = database_options(self._shared)
        # Naming the column family matters: otherwise a reopened database takes its old options from disk, with a
        # block cache of its own instead of the shared one.
        db = Rdict(str(self._folder.database), options, column_families={"default": options})
        try:
            db.set_options({"memtable_max_range_deletions": str(MEMTABLE_RANGE_DELETES_MAX)})
            self._folder.note_format(self._format_id)
        except BaseException:
            _close(db)
            raise
        return db

    def _require_open(self, doing: str) -> None:
        if not self._is_open:
            raise IndexClosed(f"cannot {doing}: the index in {self._folder.path} is closed")

    def _failed(self, doing: str, failure: Exception) -> IndexFailed:
        if isinstance(failure, DbClosedError):
            return IndexClosed(f"cannot {doing}: the index in {self._folder.path} is closed")
        self._on_failure()
        if _is_damage(failure):
            self._folder.note_damage(str(failure))
        return IndexFailed(f"cannot {doing} the index in {self._folder.path}: {failure}")


def _close(db: Rdict) -> None:
    """Close a database. It flushes once more; what a full disk says to that changes nothing, the log has all."""
    with suppress(Exception):
        db.close()


def _is_damage(failure: Exception) -> bool:
    """Whether the files are wrong, rather than the disk or the process short of something.

    RocksDB says `Corruption`, `Invalid argument` (options or files of another version) or names a file that is gone.
    """
    text = str(failure)
    return text.startswith(("Corruption", "Invalid argument", "Not implemented")) or "No such file" in text
