"""The notes of how far local copies reach, and the probe of the disk they lie on."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noontide.adapters.rocksdb.copies import LocalCopies
from noontide.adapters.rocksdb.index import RocksIndex
from noontide.ports.due_index import IndexBatch, IndexFailed


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond 1 MiB, as if the disk were full: the write fails with an error."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_note_is_there_again_and_damage_costs_only_the_hint(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path, 3)
    for slot, freshness in ((0, 12), (2, 7)):
        copies.folder_of(slot).mkdir()
        copies.note(slot, freshness)
    assert LocalCopies(tmp_path, 3).freshness() == {0: 12, 2: 7}
    next(copies.folder_of(0).iterdir()).write_text("?")
    assert LocalCopies(tmp_path, 3).freshness() == {2: 7}


def test_a_disk_with_room_passes_and_nothing_is_left(tmp_path: Path) -> None:
    LocalCopies(tmp_path, 1).probe()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more_is_noticed(tmp_path: Path) -> None:
    with small_files(), pytest.raises(IndexFailed, match="nothing can be written"):
        LocalCopies(tmp_path, 1).probe()
    assert list(tmp_path.iterdir()) == []


def test_an_index_on_a_full_disk_says_so_and_can_be_opened_again_when_there_is_room(tmp_path: Path) -> None:
    failures: list[bool] = []

    def opened() -> RocksIndex:
        return RocksIndex(tmp_path / "slot-0", format_id="rows", on_failure=lambda: failures.append(True))

    with small_files():
        index = opened()
        index.write(IndexBatch(puts={b"%d" % number: os.urandom(300_000) for number in range(10)}))
        with pytest.raises(IndexFailed):
            index.checkpoint()
        assert failures
        with pytest.raises(IndexFailed):
            index.close()
    again = opened()
    again.write(IndexBatch(puts={b"k": b"v"}))
    again.close()
