"""A cursor and the due row that follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.cursor import Cursor, JobState
from noontide.records.rows import Purpose, decode_due_row, due_key_parts, due_row_of
from noontide.records.state import decode_cursor, encode_cursor

instants = st.none() | st.integers(-(2**40), 2**45)
cursors = st.builds(
    Cursor,
    state=st.sampled_from(JobState),
    due_ms=instants,
    start_ms=instants,
    runs=st.integers(0, 2**31),
    generation=st.integers(1, 60_000),
    last_due_ms=instants,
    accepted_ms=st.integers(0, 2**45),
    reason=st.none() | st.text(max_size=50),
)


@given(cursor=cursors)
def test_the_record_gives_the_same_cursor(cursor: Cursor) -> None:
    assert decode_cursor(encode_cursor(cursor)) == cursor


def test_what_is_absent_is_left_out() -> None:
    assert encode_cursor(Cursor(JobState.PAUSED)) == b'{"state":"paused","n":0,"gen":1,"accepted":0}'


def test_a_reason_may_hold_anything() -> None:
    cursor = Cursor(JobState.QUARANTINED, reason='a "quoted"\nline \u20ac')
    assert decode_cursor(encode_cursor(cursor)) == cursor


@pytest.mark.parametrize(
    "state, purpose",
    [
        (JobState.ACTIVE, Purpose.FIRE),
        (JobState.COMPLETED, Purpose.REMOVE),
        (JobState.DELETED, Purpose.FORGET),
        (JobState.PAUSED, None),
        (JobState.QUARANTINED, None),
        (JobState.BLOCKED, None),
    ],
)
def test_what_happens_next_follows_from_the_state(state: JobState, purpose: Purpose | None) -> None:
    row = due_row_of(7, b"a", Cursor(state, 1_000, 1_500, 3, 2, None, 900))
    assert (None if row is None else decode_due_row(row[1]).purpose) == purpose


def test_a_cursor_without_a_start_has_no_due_row() -> None:
    assert due_row_of(7, b"a", Cursor(JobState.ACTIVE)) is None


@given(cursor=cursors, start_ms=st.integers(-(2**40), 2**45))
def test_a_due_row_holds_what_a_claim_needs(cursor: Cursor, start_ms: int) -> None:
    cursor = cursor._replace(state=JobState.ACTIVE, start_ms=start_ms)
    row = due_row_of(7, b"job", cursor)
    assert row is not None
    key, value = row
    due = decode_due_row(value)
    assert due_key_parts(key) == (max(0, start_ms), b"job")
    assert due.due_ms == (start_ms if cursor.due_ms is None else cursor.due_ms)
    assert (due.runs, due.generation, due.accepted_ms) == (cursor.runs, cursor.generation, cursor.accepted_ms)
