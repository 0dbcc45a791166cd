"""The due rows in memory against the whole of them in a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.actors.timers import DueItem, DueWindow
from noontide.adapters.memory.index import MemoryIndex
from noontide.ports.due_index import IndexBatch
from noontide.records.rows import MAX_START_MS, due_key, due_key_parts, due_range

HORIZON_MS = 1_000


def _key(start_ms: int, job: int) -> bytes:
    return due_key(3, start_ms, b"j%d" % job)


class Both:
    """A window and the rows it is a view of, driven as a slot drives them."""

    def __init__(self, *, preload_max: int, late_heap_max: int) -> None:
        self.index = MemoryIndex()
        self.window = DueWindow(3, preload_max=preload_max, late_heap_max=late_heap_max)
        self.now_ms = 0

    def rows(self) -> list[DueItem]:
        return self.index.scan(*due_range(3), 1 << 30)

    def due(self) -> list[DueItem]:
        return [row for row in self.rows() if due_key_parts(row[0])[0] <= self.now_ms]

    def cycle(self, limit: int, give_back: int, writes: list[tuple[bytes, bytes | None]]) -> list[DueItem]:
        """One cycle: refill, take, give some back, then apply the range delete and the writes."""
        self.window.refill(self.index.scan, now_ms=self.now_ms, horizon_ms=HORIZON_MS)
        taken = self.window.take(self.now_ms, limit)
        assert taken == self.due()[: len(taken)], "not the earliest rows"
        kept = taken[: max(len(taken) - give_back, min(1, len(taken)))]
        self.window.give_back(len(taken) - len(kept))
        batch = IndexBatch()
        if kept:
            start, stop = self.window.drained(kept)
            assert self.index.scan(start, stop, 1 << 30) == kept, "the drained range holds other rows"
            batch.deleted_ranges.append((start, stop))
        batch.puts.update(writes)
        self.index.write(batch)
        for key, value in writes:
            if value is None:
                self.window.remove(key)
            else:
                self.window.add(key, value)
        return kept

    def drain(self, limit: int) -> None:
        """Cycles until nothing is taken any more: then nothing is due."""
        while self.cycle(limit, 0, []):
            pass
        assert self.due() == []


writes = st.lists(
    st.tuples(st.integers(-500, 3_000), st.integers(0, 5), st.booleans()),
    max_size=4,
)
steps = st.lists(
    st.tuples(st.integers(0, 900), st.integers(0, 5), st.integers(0, 4), writes),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(steps=steps, preload_max=st.integers(1, 8), late_heap_max=st.integers(0, 4))
def test_the_window_never_loses_or_invents_a_row(
    steps: list[tuple[int, int, int, list[tuple[int, int, bool]]]], preload_max: int, late_heap_max: int
) -> None:
    both = Both(preload_max=preload_max, late_heap_max=late_heap_max)
    for passed_ms, limit, give_back, changes in steps:
        both.now_ms += passed_ms
        present = dict(both.rows())
        planned: list[tuple[bytes, bytes | None]] = []
        for offset_ms, job, removes in changes:
            key = _key(max(0, both.now_ms + offset_ms), job)
            if removes and present:
                key = sorted(present)[job % len(present)]
            planned.append((key, None))  # a row that is written anew is unscheduled first
            if not removes:
                planned.append((key, b"v"))
        both.cycle(limit, give_back, planned)
    both.drain(3)
    both.now_ms += 10_000
    both.drain(3)
    assert both.rows() == []


def test_a_row_is_taken_at_its_instant_and_not_before() -> None:
    both = Both(preload_max=10, late_heap_max=10)
    both.cycle(1, 0, [(_key(500, 1), b"v")])
    both.now_ms = 499
    assert both.cycle(1, 0, []) == []
    both.now_ms = 500
    assert both.cycle(1, 0, []) == [(_key(500, 1), b"v")]


@pytest.mark.parametrize("start_ms", [0, 59_999, 60_000, 60_001, 1_772_323_200_123])
def test_keys_sort_by_start_then_by_job(start_ms: int) -> None:
    key = due_key(3, start_ms, b"job")
    assert due_key_parts(key) == (start_ms, b"job")
    assert key < due_key(3, start_ms, b"joc") < due_key(3, start_ms + 1, b"a")


@pytest.mark.parametrize("start_ms, kept_ms", [(-5, 0), (MAX_START_MS + 1, MAX_START_MS)])
def test_times_that_do_not_fit_are_the_nearest_that_do(start_ms: int, kept_ms: int) -> None:
    assert due_key_parts(due_key(3, start_ms, b"job")) == (kept_ms, b"job")


def test_what_lies_beyond_the_horizon_stays_in_the_index() -> None:
    both = Both(preload_max=10, late_heap_max=10)
    both.cycle(0, 0, [(_key(HORIZON_MS + n, n), b"v") for n in (-1, 0, 1)])
    both.now_ms = 1
    both.cycle(0, 0, [])
    assert len(both.window) == 1
    assert both.window.next_ms() == HORIZON_MS - 1


def test_the_preload_is_bounded() -> None:
    both = Both(preload_max=4, late_heap_max=10)
    both.index.write(IndexBatch(puts={_key(n, n): b"v" for n in range(1, 10)}))
    both.cycle(0, 0, [])
    assert len(both.window) == 4
    both.now_ms = 10
    both.drain(2)


def test_next_is_the_earliest_of_preload_and_late_ones() -> None:
    both = Both(preload_max=10, late_heap_max=10)
    assert both.window.next_ms() is None
    both.index.write(IndexBatch(puts={_key(500, 1): b"v"}))
    both.cycle(0, 0, [])
    assert both.window.next_ms() == 500
    both.cycle(0, 0, [(_key(400, 2), b"v")])
    assert both.window.next_ms() == 400
    both.cycle(0, 0, [(_key(400, 2), None)])
    assert both.window.next_ms() == 500


def _waiting(*starts_ms: int) -> DueWindow:
    """A window with one row for each of these, in memory."""
    window = DueWindow(3, preload_max=100, late_heap_max=100)
    window.refill(lambda _start, _stop, _limit: [], now_ms=0, horizon_ms=60_000)
    for number, start_ms in enumerate(starts_ms):
        window.add(_key(start_ms, number), b"")
    return window


def _starts(taken: list[DueItem]) -> list[int]:
    return [due_key_parts(key)[0] for key, _ in taken]


def test_what_fell_due_last_is_taken_beside_a_backlog() -> None:
    window = _waiting(*[1_000] * 10, *range(1_500, 1_506))
    assert _starts(window.take(2_000, 4)) == [1_000] * 4
    assert _starts(window.take_fresh(2_000, 3)) == [1_503, 1_504, 1_505]
    assert _starts(window.take(2_000, 100)) == [*[1_000] * 6, 1_500, 1_501, 1_502]


def test_what_fell_due_a_twentieth_of_a_second_later_is_not_behind_the_backlog() -> None:
    window = _waiting(*[1_000] * 10, 1_049, 1_050)
    window.take(2_000, 4)
    assert _starts(window.take_fresh(2_000, 3)) == [1_050]


def test_what_is_due_at_one_instant_has_no_order() -> None:
    window = _waiting(*range(1_000, 1_010))
    window.take(2_000, 4)
    assert window.take_fresh(2_000, 3) == []
    assert len(window.take(2_000, 100)) == 6
    assert window.take_fresh(2_000, 3) == []
