"""Trace contexts that follow from runs."""

from __future__ import annotations

import pytest

from noontide.core.tracing import (
    attempt_context,
    dispatch_context,
    dispatch_span,
    is_sampled,
    parse_traceparent,
    parts_of,
    result_context,
    result_span,
)

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
RUN = b"a:20260302T000000Z"


@pytest.mark.parametrize(
    "text, kept",
    [
        (GIVEN, GIVEN),
        (GIVEN[:-2] + "00", GIVEN[:-2] + "00"),
        (GIVEN[:-2] + "03", GIVEN),
        ("cc-" + GIVEN[3:] + "-more", GIVEN),
        (None, ""),
        ("", ""),
        ("ff-" + GIVEN[3:], ""),
        (GIVEN.upper(), ""),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", ""),
        (GIVEN[:-3], ""),
        (GIVEN + "\n", ""),
    ],
)
def test_what_is_kept_of_a_context(text: str | None, kept: str) -> None:
    assert parse_traceparent(text) == kept


def test_a_run_goes_on_in_the_trace_of_its_request() -> None:
    contexts = [make(RUN, 3, GIVEN) for make in (attempt_context, result_context)]
    contexts += [dispatch_context(RUN, GIVEN, attempt) for attempt in (1, 2)]
    assert {parts_of(context)[0] for context in contexts} == {parts_of(GIVEN)[0]}
    assert len({parts_of(context)[1] for context in contexts} | {parts_of(GIVEN)[1]}) == 5
    assert all(parse_traceparent(context) == context for context in contexts)
    assert not is_sampled(attempt_context(RUN, 3, GIVEN[:-2] + "00"))


def test_a_run_without_one_is_a_trace_of_its_own() -> None:
    context = dispatch_context(RUN)
    assert parse_traceparent(context) == context
    assert parts_of(attempt_context(RUN, 1))[0] == parts_of(context)[0] != parts_of(dispatch_context(b"b:1"))[0]
    assert attempt_context(RUN, 1) != attempt_context(RUN, 2)


def test_spans_of_an_owner_hang_together() -> None:
    dispatch = dispatch_span("a:1", "handler:x", 5, 9, trace=GIVEN)
    assert (dispatch.trace, dispatch.parent) == parts_of(GIVEN)
    assert dispatch.span == parts_of(dispatch_context(b"a:1", GIVEN))[1]
    result = result_span("a:1", "succeeded", 12, token=4, trace=GIVEN)
    assert (result.trace, result.parent) == parts_of(attempt_context(b"a:1", 4, GIVEN))
    assert result_span("a:1", "dead", 12, token=0, trace=GIVEN).parent == dispatch.span
