"""Frames of workers and the answers of owners."""

from __future__ import annotations

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.records.worker_events import NO_RESULT, WORKER_MAX_CHARS, End, Frame, Outcome, decode_frame, encode_frame
from noontide.records.worker_inbox import INBOX_PARTITIONS, Answer, decode_answer, encode_answer

names, tokens = st.text(max_size=20), st.integers(0, 2**62)
ends = st.builds(
    End,
    run_id=names,
    token=tokens,
    outcome=st.sampled_from(Outcome),
    permanent=st.booleans(),
    error=st.none() | names,
    retry_after_ms=st.none() | tokens,
    status=st.none() | st.integers(100, 599),
    result=st.just(NO_RESULT) | st.sampled_from([b"null", b'{"a":1.50}', b'"\xc3\xa9"']).map(msgspec.Raw),
    truncated=st.booleans(),
    duration_ms=tokens,
)
frames = st.builds(
    Frame,
    worker=st.text(max_size=WORKER_MAX_CHARS),
    inbox=st.integers(0, INBOX_PARTITIONS - 1),
    claims=st.lists(st.tuples(names, tokens), max_size=3),
    beats=st.lists(st.tuples(names, tokens), max_size=3),
    ends=st.lists(ends, max_size=3),
    progress=st.lists(st.tuples(names, tokens, st.none() | st.floats(0, 1), names), max_size=3),
    probe=st.none() | names,
)
answers = st.builds(
    Answer,
    worker=names,
    slot=st.integers(0, 63),
    grants=st.lists(st.tuples(names, tokens, tokens, tokens), max_size=3),
    denied=st.lists(st.tuples(names, tokens, names), max_size=3),
    cancels=st.lists(st.tuples(names, tokens, names), max_size=3),
    lost=st.lists(st.tuples(names, tokens), max_size=3),
)


@given(frame=frames)
def test_a_frame_comes_back(frame: Frame) -> None:
    found = decode_frame(encode_frame(frame))
    assert [bytes(end.result) for end in found.ends] == [bytes(end.result) for end in frame.ends]
    assert encode_frame(found) == encode_frame(frame)


@given(answer=answers)
def test_an_answer_comes_back(answer: Answer) -> None:
    assert decode_answer(encode_answer(answer)) == answer


def test_what_is_empty_is_left_out() -> None:
    assert encode_frame(Frame(probe="s")) == b'{"probe":"s"}'
    assert encode_frame(Frame(worker="w", beats=[("a", 1)])) == b'{"worker":"w","beats":[["a",1]]}'
    end = End(run_id="a", token=1, outcome=Outcome.SUCCEEDED)
    assert orjson.loads(encode_frame(Frame(worker="w", ends=[end])))["ends"] == [
        {"run_id": "a", "token": 1, "outcome": "succeeded"}
    ]
    assert not Answer(worker="w", slot=0)
    assert Answer(worker="w", slot=0, lost=[("a", 1)])


def test_later_fields_are_passed_over() -> None:
    assert decode_frame(b'{"worker":"w","mood":"good"}').worker == "w"


@pytest.mark.parametrize(
    "value",
    [
        b"", b"null", b"[]", b'{"worker":1}', b'{"inbox":-1}', b'{"inbox":16}', b'{"claims":[["a"]]}',
        b'{"claims":[["a","1"]]}', b'{"beats":[["a",1.5]]}', b'{"ends":[{"run_id":"a","token":1}]}',
        b'{"ends":[{"run_id":"a","token":1,"outcome":"maybe"}]}', b'{"worker":"' + b"w" * 201 + b'"}',
    ],
)  # fmt: skip
def test_what_is_no_frame_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=".+"):
        decode_frame(value)
