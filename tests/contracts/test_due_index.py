"""The contract of `DueIndex`, over memory and RocksDB; then what only RocksDB can do wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.rocksdb.index import ROW_BY_ROW_DELETES_MAX, RocksIndex
from noontide.adapters.rocksdb.options import MIB, SharedMemory
from noontide.ports.due_index import DueIndex, IndexBatch, IndexClosed, IndexFailed, IndexInUse

FORMAT = "rows-1"


def _open_rocks(path: Path) -> RocksIndex:
    return RocksIndex(path, format_id=FORMAT, shared=None)


def _reopen(index: DueIndex, path: Path) -> DueIndex:
    """Another index over what the closed one left."""
    if isinstance(index, MemoryIndex):
        return MemoryIndex(index.surviving_rows())
    return _open_rocks(path)


@pytest.fixture(params=["memory", "rocksdb"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DueIndex]:
    opened: DueIndex = MemoryIndex() if request.param == "memory" else _open_rocks(tmp_path / "slot-0")
    yield opened
    opened.close()


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksIndex]:
    opened = _open_rocks(tmp_path / "slot-0")
    yield opened
    opened.close()


def _put(index: DueIndex, *keys: bytes) -> None:
    index.write(IndexBatch(puts={key: b"value of " + key for key in keys}))


def _rows(index: DueIndex) -> list[tuple[bytes, bytes]]:
    return index.scan(b"", b"\xff" * 8, 1_000_000)


def _keys(index: DueIndex) -> list[bytes]:
    return [key for key, _ in _rows(index)]


class TestScan:
    def test_rows_come_in_byte_order_whatever_the_order_of_writing(self, index: DueIndex) -> None:
        keys = [b"\x00\x01", b"\x00", b"\x01", b"\xfe\xff", b"\x00\xff", b"\x7f", b"\x80"]
        _put(index, *keys[:4])
        _put(index, *keys[4:])
        assert _keys(index) == sorted(keys)

    def test_start_is_inclusive_and_stop_exclusive(self, index: DueIndex) -> None:
        _put(index, b"a", b"b", b"b\x00", b"c", b"d")
        assert [key for key, _ in index.scan(b"b", b"d", 10)] == [b"b", b"b\x00", b"c"]
        assert [key for key, _ in index.scan(b"a\xff", b"c\x00", 10)] == [b"b", b"b\x00", b"c"]

    @pytest.mark.parametrize("limit, expected", [(0, []), (1, [b"a"]), (2, [b"a", b"b"]), (3, [b"a", b"b"])])
    def test_limit(self, index: DueIndex, limit: int, expected: list[bytes]) -> None:
        _put(index, b"a", b"b")
        assert [key for key, _ in index.scan(b"a", b"z", limit)] == expected

    @pytest.mark.parametrize("start, stop", [(b"b", b"b"), (b"c", b"a"), (b"x", b"z")])
    def test_ranges_without_rows(self, index: DueIndex, start: bytes, stop: bytes) -> None:
        _put(index, b"a", b"b", b"c")
        assert index.scan(start, stop, 10) == []

    def test_an_empty_index_has_no_rows(self, index: DueIndex) -> None:
        assert _rows(index) == []

    def test_rows_show_the_last_value_across_a_checkpoint(self, index: DueIndex) -> None:
        index.write(IndexBatch(puts={b"a": b"old", b"b": b"kept"}))
        index.checkpoint()
        index.write(IndexBatch(puts={b"a": b"new"}))
        assert _rows(index) == [(b"a", b"new"), (b"b", b"kept")]


class TestGetMany:
    def test_values_come_in_the_asked_order_with_duplicates_and_gaps(self, index: DueIndex) -> None:
        _put(index, b"a", b"c")
        index.write(IndexBatch(puts={b"e": b""}))
        asked = [b"e", b"c", b"b", b"a", b"c", b"zz"]
        assert index.get_many(asked) == [b"", b"value of c", None, b"value of a", b"value of c", None]

    def test_sorted_keys(self, index: DueIndex) -> None:
        _put(index, b"a", b"b", b"c")
        assert index.get_many((b"a", b"b", b"bb", b"c")) == [b"value of a", b"value of b", None, b"value of c"]

    def test_no_keys(self, index: DueIndex) -> None:
        assert index.get_many([]) == []


class TestWrite:
    def test_puts_survive_the_range_deleted_in_the_same_batch(self, index: DueIndex) -> None:
        _put(index, b"a", b"b", b"c", b"d")
        index.write(IndexBatch(deleted_ranges=[(b"b", b"d")], puts={b"b": b"again", b"cc": b"new"}))
        assert _rows(index) == [(b"a", b"value of a"), (b"b", b"again"), (b"cc", b"new"), (b"d", b"value of d")]

    @pytest.mark.parametrize("row_count", [1, ROW_BY_ROW_DELETES_MAX, ROW_BY_ROW_DELETES_MAX + 1, 500])
    def test_a_range_delete_takes_exactly_its_rows(self, index: DueIndex, row_count: int) -> None:
        keys = [b"d%06d" % number for number in range(row_count)]
        _put(index, b"c", *keys, b"d%06d" % row_count, b"e")
        index.write(IndexBatch(deleted_ranges=[(keys[0], b"d%06d" % row_count)], puts={keys[0]: b"put"}))
        assert _keys(index) == [b"c", keys[0], b"d%06d" % row_count, b"e"]
        assert index.get_many([keys[0], keys[-1]])[0] == b"put"

    def test_ranges_may_overlap_and_be_empty_or_reversed(self, index: DueIndex) -> None:
        _put(index, b"a", b"b", b"c", b"d", b"e")
        index.write(IndexBatch(deleted_ranges=[(b"b", b"d"), (b"c", b"e"), (b"a", b"a"), (b"e", b"a")]))
        assert _keys(index) == [b"a", b"e"]

    def test_none_deletes_a_row_and_forgives_a_missing_one(self, index: DueIndex) -> None:
        _put(index, b"a", b"b")
        index.write(IndexBatch(puts={b"a": None, b"missing": None, b"c": b"3"}))
        assert _rows(index) == [(b"b", b"value of b"), (b"c", b"3")]

    def test_an_empty_batch_changes_nothing(self, index: DueIndex) -> None:
        _put(index, b"a")
        index.write(IndexBatch())
        assert _keys(index) == [b"a"]

    def test_large_values(self, index: DueIndex) -> None:
        large = os.urandom(1 << 20)
        index.write(IndexBatch(puts={b"a": large}))
        assert index.get_many([b"a"]) == [large]


class TestLife:
    def test_wipe_deletes_every_row_and_the_index_goes_on(self, index: DueIndex) -> None:
        _put(index, b"a", b"b")
        index.checkpoint()
        _put(index, b"c", b"\xff\xff\xff")
        index.wipe()
        assert _rows(index) == []
        assert index.get_many([b"a", b"\xff\xff\xff"]) == [None, None]
        _put(index, b"d")
        assert _keys(index) == [b"d"]

    def test_rows_survive_close_without_a_checkpoint(self, index: DueIndex, tmp_path: Path) -> None:
        _put(index, b"a", b"b", b"c")
        index.write(IndexBatch(deleted_ranges=[(b"b", b"c")]))
        index.close()
        again = _reopen(index, tmp_path / "slot-0")
        assert _rows(again) == [(b"a", b"value of a"), (b"c", b"value of c")]
        again.close()

    def test_a_wipe_survives_close(self, index: DueIndex, tmp_path: Path) -> None:
        _put(index, b"a")
        index.checkpoint()
        index.wipe()
        index.close()
        again = _reopen(index, tmp_path / "slot-0")
        assert _rows(again) == []
        again.close()

    @pytest.mark.parametrize(
        "call",
        [
            lambda index: index.get_many([b"a"]),
            lambda index: index.get_many([]),
            lambda index: index.scan(b"a", b"b", 1),
            lambda index: index.scan(b"a", b"b", 0),
            lambda index: index.write(IndexBatch(puts={b"a": b"1"})),
            lambda index: index.write(IndexBatch(deleted_ranges=[(b"a", b"b")])),
            lambda index: index.write(IndexBatch()),
            lambda index: index.checkpoint(),
            lambda index: index.wipe(),
        ],
    )
    def test_calls_after_close_are_refused(self, index: DueIndex, call: Callable[[DueIndex], object]) -> None:
        index.close()
        with pytest.raises(IndexClosed, match="closed"):
            call(index)

    def test_closing_twice_is_fine(self, index: DueIndex) -> None:
        index.close()
        index.close()


_SHORT_KEYS = st.binary(max_size=3)
_BATCHES = st.lists(
    st.builds(
        IndexBatch,
        deleted_ranges=st.lists(st.tuples(_SHORT_KEYS, _SHORT_KEYS), max_size=2),
        puts=st.dictionaries(_SHORT_KEYS, st.none() | st.binary(max_size=4), max_size=8),
    ),
    max_size=6,
)


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocksIndex]:
    opened = _open_rocks(tmp_path_factory.mktemp("reused"))
    yield opened
    opened.close()


@settings(max_examples=60, deadline=None)
@given(batches=_BATCHES, asked=st.lists(_SHORT_KEYS, max_size=6), window=st.tuples(_SHORT_KEYS, _SHORT_KEYS))
def test_both_indexes_agree_on_any_batches(
    reused: RocksIndex, batches: list[IndexBatch], asked: list[bytes], window: tuple[bytes, bytes]
) -> None:
    memory = MemoryIndex()
    reused.write(IndexBatch(deleted_ranges=[(b"", b"\xff" * 4)]))
    for batch in batches:
        memory.write(batch)
        reused.write(batch)
    assert _rows(reused) == _rows(memory)
    assert reused.get_many(asked) == memory.get_many(asked)
    assert reused.scan(*window, 3) == memory.scan(*window, 3)


class TestMemoryModelsAKill:
    def test_rows_after_the_checkpoint_are_lost(self) -> None:
        index = MemoryIndex()
        _put(index, b"a")
        index.checkpoint()
        _put(index, b"b")
        assert _keys(MemoryIndex(index.surviving_rows())) == [b"a"]


class TestOpening:
    def test_a_fresh_folder_was_not_wiped(self, rocks: RocksIndex) -> None:
        assert (rocks.was_wiped, rocks.wiped_because) == (False, None)

    def test_the_same_format_keeps_the_rows(self, rocks: RocksIndex, tmp_path: Path) -> None:
        _put(rocks, b"a")
        rocks.close()
        again = _open_rocks(tmp_path / "slot-0")
        assert (again.was_wiped, _keys(again)) == (False, [b"a"])
        again.close()

    def test_another_format_empties_the_index_once(self, rocks: RocksIndex, tmp_path: Path) -> None:
        _put(rocks, b"a")
        rocks.close()
        changed = RocksIndex(tmp_path / "slot-0", format_id="rows-2", shared=None)
        assert changed.wiped_because == "the rows have format 'rows-1', not 'rows-2'"
        assert _rows(changed) == []
        _put(changed, b"b")
        changed.close()
        again = RocksIndex(tmp_path / "slot-0", format_id="rows-2", shared=None)
        assert (again.was_wiped, _keys(again)) == (False, [b"b"])
        again.close()

    def test_a_missing_format_empties_the_index(self, rocks: RocksIndex, tmp_path: Path) -> None:
        _put(rocks, b"a")
        rocks.close()
        (tmp_path / "slot-0" / "FORMAT").unlink()
        again = _open_rocks(tmp_path / "slot-0")
        assert (again.wiped_because, _rows(again)) == ("the format of the rows is not noted", [])
        again.close()

    def test_the_folder_is_refused_while_open_here(self, rocks: RocksIndex, tmp_path: Path) -> None:
        _put(rocks, b"a")
        with pytest.raises(IndexInUse, match="slot-0"):
            RocksIndex(tmp_path / "slot-0", format_id="rows-2", shared=None)
        assert _keys(rocks) == [b"a"]

    @pytest.mark.usefixtures("rocks")
    def test_the_folder_is_refused_while_open_in_another_process(self, tmp_path: Path) -> None:
        program = (
            "import sys; from pathlib import Path\n"
            "from noontide.adapters.rocksdb.index import RocksIndex\n"
            "RocksIndex(Path(sys.argv[1]), format_id='rows-1', shared=None)\n"
        )
        child = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "slot-0")], capture_output=True, text=True, check=False
        )
        assert child.returncode == 1
        assert "IndexInUse" in child.stderr

    def test_a_path_that_is_a_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "slot-0").write_text("in the way")
        with pytest.raises(IndexFailed, match="slot-0"):
            _open_rocks(tmp_path / "slot-0")


class TestSharedMemory:
    def test_a_reopened_index_uses_the_shared_cache_and_buffers(self, tmp_path: Path) -> None:
        shared = SharedMemory(block_cache_bytes=4 * MIB, write_buffers_bytes=4 * MIB)
        first = RocksIndex(tmp_path / "slot-0", format_id=FORMAT, shared=shared)
        first.write(IndexBatch(puts={b"%06d" % number: os.urandom(500) for number in range(4_000)}))
        first.close()
        again = RocksIndex(tmp_path / "slot-0", format_id=FORMAT, shared=shared)
        before_bytes = shared.block_cache_used_bytes
        assert len(_rows(again)) == 4_000
        assert 500_000 < shared.block_cache_used_bytes - before_bytes < 4 * MIB
        buffered_bytes = shared.write_buffers_used_bytes
        again.write(IndexBatch(puts={b"x": bytes(100_000)}))
        assert shared.write_buffers_used_bytes - buffered_bytes >= 100_000
        again.close()

    def test_nothing_is_written_to_a_write_ahead_log(self, rocks: RocksIndex, tmp_path: Path) -> None:
        rocks.write(IndexBatch(puts={b"%06d" % number: os.urandom(1_000) for number in range(500)}))
        logs = list((tmp_path / "slot-0" / "db").glob("[0-9]*.log"))
        assert sum(log.stat().st_size for log in logs) == 0


def _flip_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """The folder of a closed index with 5,000 rows in several blocks of one file."""
    opened = _open_rocks(tmp_path / "slot-0")
    opened.write(IndexBatch(puts={b"%06d" % number: os.urandom(100) for number in range(5_000)}))
    opened.close()
    return tmp_path / "slot-0"


def _only(folder: Path, pattern: str) -> Path:
    (found,) = (folder / "db").glob(pattern)
    return found


class TestDamage:
    @pytest.mark.parametrize("damage", ["flip manifest", "cut current", "lose current", "lose manifest", "cut rows"])
    def test_damage_seen_at_opening_empties_the_index(self, filled: Path, damage: str) -> None:
        match damage:
            case "flip manifest":
                _flip_middle(_only(filled, "MANIFEST-*"))
            case "cut current":
                (filled / "db" / "CURRENT").write_bytes(b"")
            case "lose current":
                (filled / "db" / "CURRENT").unlink()
            case "lose manifest":
                _only(filled, "MANIFEST-*").unlink()
            case "cut rows":
                os.truncate(_only(filled, "*.sst"), 100)
        again = _open_rocks(filled)
        assert again.wiped_because is not None
        assert again.wiped_because.startswith("damaged: ")
        assert _rows(again) == []
        _put(again, b"a")
        again.close()
        healthy = _open_rocks(filled)
        assert (healthy.was_wiped, _keys(healthy)) == (False, [b"a"])
        healthy.close()

    @pytest.mark.parametrize(
        "read",
        [
            lambda index: index.scan(b"", b"\xff", 10_000),
            lambda index: index.get_many([b"%06d" % number for number in range(5_000)]),
            lambda index: [
                index.write(IndexBatch(deleted_ranges=[(b"%06d" % n, b"%06d" % (n + 9))])) for n in range(5_000)
            ],
        ],
        ids=["scan", "get_many", "range delete"],
    )
    def test_damage_met_by_a_reader_is_an_error_and_the_next_opening_is_empty(
        self, filled: Path, read: Callable[[DueIndex], object]
    ) -> None:
        _flip_middle(_only(filled, "*.sst"))
        index = _open_rocks(filled)
        assert not index.was_wiped
        with pytest.raises(IndexFailed, match="checksum mismatch"):
            read(index)
        index.close()
        again = _open_rocks(filled)
        assert again.wiped_because is not None
        assert "checksum mismatch" in again.wiped_because
        assert _rows(again) == []
        again.close()

    def test_a_scan_away_from_the_damage_works(self, filled: Path) -> None:
        _flip_middle(_only(filled, "*.sst"))
        index = _open_rocks(filled)
        assert len(index.scan(b"000000", b"000100", 1_000)) == 100
        index.close()


_FULL_DISK = """
import os, resource, sys
from pathlib import Path
from noontide.ports.due_index import IndexFailed
from noontide.adapters.rocksdb.index import RocksIndex
from noontide.ports.due_index import IndexBatch

index = RocksIndex(Path(sys.argv[1]), format_id="rows-1", shared=None)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
written = 0
try:
    for number in range(1, 10_000):
        rows = {b"r%06d/%02d" % (number, row): os.urandom(1_000) for row in range(20)}
        index.write(IndexBatch(puts={**rows, b"z": b"%d" % number}))
        written = number
        if number % 50 == 0:
            index.checkpoint()
except IndexFailed as failure:
    print("IndexFailed", written, int(index.get_many([b"z"])[0]), failure)
    os._exit(3)
"""


def test_a_disk_that_refuses_writes_is_one_named_error_and_leaves_whole_batches(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path / "slot-0")], capture_output=True, text=True, check=False
    )
    assert child.returncode == 3, child.stderr
    name, written, in_memory, message = child.stdout.split(maxsplit=3)
    assert (name, written) == ("IndexFailed", in_memory)
    assert "File too large" in message
    again = _open_rocks(tmp_path / "slot-0")
    found = again.get_many([b"z"])[0]
    rows = again.scan(b"r", b"s", 1_000_000)
    assert len(rows) == 20 * int(found or 0)
    again.close()
