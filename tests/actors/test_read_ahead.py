"""Rows that were read ahead are those of the index, whatever is read and written meanwhile."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.actors.read_ahead import STEP_ROWS, ReadAhead
from noontide.actors.timers import DueWindow
from noontide.adapters.memory.index import MemoryIndex
from noontide.ports.due_index import IndexBatch
from noontide.records.rows import due_key, due_range, job_key

PARTITION = 3
Change = tuple[str, int, int]


class _Counted(MemoryIndex):
    """Counts the rows asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def get_many(self, keys: object) -> list[bytes | None]:
        self.asked += len(keys)  # type: ignore[arg-type]
        return super().get_many(keys)  # type: ignore[arg-type]


def _id(number: int) -> bytes:
    return b"j%05d" % number


def _row(number: int) -> bytes:
    return job_key(PARTITION, _id(number))


def _with_jobs(count: int, *, size: int = 10) -> tuple[_Counted, DueWindow]:
    """Jobs that are due at 1,000 ms, in an index and in the window over it."""
    index, window = _Counted(), DueWindow(PARTITION, preload_max=10_000, late_heap_max=100)
    rows: dict[bytes, bytes | None] = {}
    for number in range(count):
        rows[_row(number)] = b"%d" % number * size
        rows[due_key(PARTITION, 1_000, _id(number))] = b"due"
    index.write(IndexBatch(puts=rows))
    window.refill(index.scan, now_ms=0, horizon_ms=60_000)
    return index, window


def test_what_was_read_ahead_is_not_read_again() -> None:
    index, window = _with_jobs(1_000)
    ahead, steps = ReadAhead(index, bytes_max=1 << 20), 0
    while ahead.step([window], 5_000):
        steps += 1
    assert steps == -(-1_000 // STEP_ROWS)
    before = index.asked
    keys = [_row(number) for number in range(1_000)]
    assert ahead.get_many(keys) == [b"%d" % number * 10 for number in range(1_000)]
    assert index.asked == before
    assert ahead.get_many(keys[:3]) == [b"0" * 10, b"1" * 10, b"2" * 10]
    assert index.asked == before + 3  # held for one reader only


def test_what_is_due_later_is_not_read_yet() -> None:
    index, window = _with_jobs(10)
    ahead = ReadAhead(index, bytes_max=1 << 20)
    assert not ahead.step([window], 999)
    assert ahead.step([window], 1_000)


def test_no_more_is_held_than_allowed() -> None:
    index, window = _with_jobs(10_000, size=100)
    ahead = ReadAhead(index, bytes_max=200_000)
    while ahead.step([window], 5_000):
        pass
    assert index.asked < 200_000 / 300 + STEP_ROWS
    ahead.get_many([_row(number) for number in range(10_000)])
    assert ahead.step([window], 5_000)  # there is room again


def test_a_row_that_moved_up_is_told_again_and_read_once() -> None:
    index, window = _with_jobs(10)
    ahead = ReadAhead(index, bytes_max=1 << 20)
    assert ahead.step([window], 5_000)
    index.write(IndexBatch(puts={_row(99): b"late"}))
    window.add(due_key(PARTITION, 500, _id(99)), b"due")
    window.take(600, 0)  # what came late is merged
    assert ahead.step([window], 5_000)
    assert index.asked == 11


changes = st.lists(
    st.tuples(
        st.sampled_from(["step", "read", "write", "delete", "take", "remove"]), st.integers(0, 39), st.integers(1, 9)
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(changes=changes, bytes_max=st.integers(1, 400))
def test_a_reader_sees_what_was_written_last(changes: list[Change], bytes_max: int) -> None:
    index, window = _with_jobs(40)
    plain = MemoryIndex(dict(index.scan(b"", b"\xff" * 8, 1_000)))
    ahead = ReadAhead(index, bytes_max=bytes_max)
    for what, number, count in changes:
        keys = [_row(each) for each in range(number, number + count)]
        match what:
            case "step":
                ahead.step([window], 5_000)
            case "read":
                assert ahead.get_many(keys) == plain.get_many(keys)
            case "write" | "delete":
                value = b"new%d" % number if what == "write" else None
                ahead.write(IndexBatch(puts=dict.fromkeys(keys, value)))
                plain.write(IndexBatch(puts=dict.fromkeys(keys, value)))
            case "take":
                window.take(1_000, count)
            case _:
                window.remove(due_key(PARTITION, 1_000, _id(number)))
    assert ahead.scan(*due_range(PARTITION), 1_000) == plain.scan(*due_range(PARTITION), 1_000)
