"""Kill -9 leaves a prefix of the batches, each whole, in the RocksDB index.

Run as a program this module is the child that gets killed: it writes numbered batches into the folder given as its
argument, going on where the rows end, and prints the number of each batch and checkpoint.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.rocksdb.index import ROW_BY_ROW_DELETES_MAX, RocksIndex
from noontide.adapters.rocksdb.options import KIB, SharedMemory
from noontide.ports.due_index import IndexBatch

KILLS = 14
CHECKPOINT_EVERY = 400
DUE_ROWS = 10
WINDOW = 10
EVERYTHING = (b"", b"\xff" * 4)


def batch_of(number: int) -> IndexBatch:
    """Batch `number`: due rows, rewritten job rows, a live row that closes its predecessor, windows drained, offset."""
    filler = b"%d " % number * 12
    puts: dict[bytes, bytes | None] = {b"\x01d%08d/%02d" % (number, row): filler for row in range(DUE_ROWS)}
    puts |= {b"\x01j%04d" % (number * step % 500): filler * 3 for step in (1, 7, 13)}
    puts |= {b"\x02l%08d" % number: filler, b"\x02l%08d" % (number - 1): None}
    puts[b"\x7foffset"] = b"%d" % number
    return IndexBatch(deleted_ranges=_drained(number), puts=puts)


def _drained(number: int) -> list[tuple[bytes, bytes]]:
    """Every tenth batch drains the ten before it in one range; the others drain one, 30 back, if still there."""
    assert WINDOW * DUE_ROWS > ROW_BY_ROW_DELETES_MAX > DUE_ROWS
    if number % WINDOW == 0 and number % (3 * WINDOW):
        return [(b"\x01d%08d" % (number - WINDOW), b"\x01d%08d" % number)]
    return [(b"\x01d%08d" % (number - 30), b"\x01d%08d" % (number - 29))]


def open_index(path: Path) -> RocksIndex:
    """Memtables of 64 KiB, so that a flush is nearly always under way."""
    return RocksIndex(
        path, format_id="kill-1", shared=SharedMemory(block_cache_bytes=512 * KIB, write_buffers_bytes=512 * KIB)
    )


def offset_of(index: RocksIndex) -> int:
    return int(index.get_many([b"\x7foffset"])[0] or 0)


def write_until_killed(path: Path) -> None:
    index = open_index(path)
    number = offset_of(index)
    while True:
        number += 1
        index.write(batch_of(number))
        os.write(1, b"written %d\n" % number)
        if number % CHECKPOINT_EVERY == 0:
            index.checkpoint()
            os.write(1, b"checkpoint %d\n" % number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """The last numbers the child reported."""

    written: int
    checkpointed: int


def kill_after(path: Path, reports: int) -> Killed:
    """Start a child and kill it at the given number of reports; then read what it had reported."""
    last = {"written": 0, "checkpoint": 0}
    with subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for count, line in enumerate(child.stdout, start=1):
            kind, number = line.split()
            last[kind.decode()] = int(number)
            if count == reports:
                child.kill()
    assert child.returncode == -9
    return Killed(written=last["written"], checkpointed=last["checkpoint"])


def rows_after(number: int) -> list[tuple[bytes, bytes]]:
    """What the index holds after batches 1 to `number`."""
    model = MemoryIndex()
    for earlier in range(1, number + 1):
        model.write(batch_of(earlier))
    return model.scan(*EVERYTHING, 10_000_000)


def test_a_killed_writer_leaves_whole_batches_in_order(tmp_path: Path) -> None:
    moments = random.Random(20_260)
    beyond_checkpoint = lost_batches = 0
    opened_at = 0
    for _ in range(KILLS):
        killed = kill_after(tmp_path / "slot-0", moments.randrange(50, 1_500))
        index = open_index(tmp_path / "slot-0")
        assert not index.was_wiped
        offset = offset_of(index)
        assert max(opened_at, killed.checkpointed) <= offset <= killed.written + 1
        assert index.scan(*EVERYTHING, 10_000_000) == rows_after(offset)
        index.close()
        beyond_checkpoint += offset > max(opened_at, killed.checkpointed)
        lost_batches += offset < killed.written
        opened_at = offset
    # The kills hit the cases they are for: rows flushed without a checkpoint, and rows still in memory.
    assert beyond_checkpoint >= KILLS // 2
    assert lost_batches >= KILLS // 2


if __name__ == "__main__":
    write_until_killed(Path(sys.argv[1]))
