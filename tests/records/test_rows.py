"""Keys of the index: what sorts where, and that nothing of one kind or partition lies in another's range."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.records import rows

partitions = st.integers(0, 255)
job_ids = st.from_regex(rb"[A-Za-z0-9._~:@-]{1,30}", fullmatch=True)
Maker = Callable[[int, bytes], bytes]
MAKERS: dict[bytes, Maker] = {
    b"d": lambda number, name: rows.due_key(number, 5, name),
    b"j": rows.job_key,
    b"c": rows.cursor_key,
    b"l": rows.live_key,
    b"x": rows.claimed_key,
    b"m": rows.meta_key,
    b"v": lambda number, name: rows.forget_key(number, 5, name),
}


@given(number=partitions, other=partitions, name=job_ids)
def test_each_row_lies_in_the_range_of_its_partition_and_kind_only(number: int, other: int, name: bytes) -> None:
    for kind, make in MAKERS.items():
        key = make(number, name)
        for another in MAKERS:
            start, stop = rows.kind_range(other, another)
            assert (start <= key < stop) is (number == other and kind == another)


@given(number=partitions, name=job_ids)
def test_different_kinds_never_share_a_key(number: int, name: bytes) -> None:
    assert len({make(number, name) for make in MAKERS.values()}) == len(MAKERS)


@given(starts=st.lists(st.integers(0, 2**47), min_size=2, max_size=20), number=partitions)
def test_due_keys_sort_by_start(starts: list[int], number: int) -> None:
    keys = [rows.due_key(number, start_ms, b"job") for start_ms in sorted(starts)]
    assert keys == sorted(keys)
    assert all(rows.due_range(number)[0] <= key < rows.due_range(number)[1] for key in keys)


@pytest.mark.parametrize("start_ms", [59_999, 60_000, 60_001, 1_772_323_200_000])
def test_the_instant_one_before_and_one_after(start_ms: int) -> None:
    keys = [rows.due_key(0, start_ms + offset_ms, b"job") for offset_ms in (-1, 0, 1)]
    assert all(one < another for one, another in pairwise(keys))
    assert [rows.due_key_parts(key)[0] - start_ms for key in keys] == [-1, 0, 1]


def test_due_range_is_the_range_of_the_kind() -> None:
    assert rows.due_range(9) == rows.kind_range(9, b"d")


@given(next_offset=st.integers(0, 2**62), appended_ms=st.integers(0, 2**45))
def test_offsets_come_back(next_offset: int, appended_ms: int) -> None:
    assert rows.decode_offset(rows.encode_offset(next_offset, appended_ms)) == (next_offset, appended_ms)


@given(number=partitions, appended_ms=st.integers(0, 2**45), key=st.binary(min_size=1, max_size=60))
def test_a_verdict_row_names_its_record(number: int, appended_ms: int, key: bytes) -> None:
    assert rows.forgotten_record_key(rows.forget_key(number, appended_ms, key)) == key


def test_verdict_rows_sort_by_age() -> None:
    keys = [rows.forget_key(0, at_ms, b"verdict/x/0/1") for at_ms in (0, 1, 255, 256, 2**40)]
    assert keys == sorted(keys)
