"""What a handler gets, and what becomes of what it returns or raises."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import msgspec
import orjson
import pydantic
import pytest
from tests.worker.memory_owner import invitation

from noontide import worker
from noontide.core.errors import InvalidDefinition
from noontide.records.runs import decode_invitation
from noontide.records.worker_events import RESULT_MAX_BYTES, End, Frame, Outcome, decode_frame, encode_frame
from noontide.worker.attempt import Attempt
from noontide.worker.holding import Holding, Stop, Way

STARTED_MS = 1_772_323_260_000


@dataclass
class Order:
    number: int
    note: str = ""


class Item(msgspec.Struct):
    number: int


class Row(TypedDict):
    number: int


class Model(pydantic.BaseModel):
    number: int


def attempt_of(function: Callable[..., Any], payload: object = None, *, stop: Stop | None = None) -> Attempt:
    app = worker.App()
    app.handler("noop")(function)
    wire = decode_invitation(invitation(7, payload=payload))
    holding = Holding("default", wire, Way.THREAD, (0, 0), last=False, arrived_ms=0.0, token=9, stop=stop)
    context = worker.Context(holding, started_ms=STARTED_MS, report=lambda *_: None)
    return Attempt(holding, app.handlers["noop"], context)


def outcome_of(function: Callable[..., Any], payload: object = None, *, stop: Stop | None = None) -> End:
    """How an attempt ends, as the owner reads it."""
    end = attempt_of(function, payload, stop=stop).run()
    (read,) = decode_frame(encode_frame(Frame(ends=[end]))).ends
    return read


def result_of(function: Callable[..., Any], payload: object = None) -> object:
    end = outcome_of(function, payload)
    assert end.outcome is Outcome.SUCCEEDED, end.error
    return orjson.loads(bytes(end.result)) if end.result else None


def echo(annotation: object) -> Callable[..., object]:
    def function(payload: object) -> object:
        return f"{type(payload).__name__}:{payload!r}"

    function.__annotations__["payload"] = annotation
    return function


@pytest.mark.parametrize(
    "annotation, payload, expected",
    [
        (dict, {"number": 1}, "dict:{'number': 1}"),
        (dict[str, int], {"number": 1}, "dict:{'number': 1}"),
        (Order, {"number": 1}, "Order:Order(number=1, note='')"),
        (Item, {"number": 1}, "Item:Item(number=1)"),
        (Row, {"number": 1}, "dict:{'number': 1}"),
        (Model, {"number": 1}, "Model:Model(number=1)"),
        (bytes, {"number": 1}, "bytes:b'{\"number\":1}'"),
        (list[int], [1, 2], "list:[1, 2]"),
        (dict | None, None, "NoneType:None"),
        (Any, "text", "str:'text'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_payload_comes_as_it_is_annotated(annotation: object, payload: object, expected: str) -> None:
    assert result_of(echo(annotation), payload) == expected


@pytest.mark.parametrize("annotation", [Order, Item, Row, Model, dict[str, int]], ids=str)
def test_a_payload_that_does_not_fit_is_a_permanent_failure_that_says_why(annotation: object) -> None:
    end = outcome_of(echo(annotation), {"number": "many"})
    assert (end.outcome, end.permanent) == (Outcome.FAILED, True)
    assert end.error is not None
    assert end.error.startswith("PermanentError: the payload does not fit the handler: ")
    assert "number" in end.error or "int" in end.error


def test_without_an_annotation_it_is_plain_json() -> None:
    def function(payload):  # type: ignore[no-untyped-def]
        return payload["number"]

    assert result_of(function, {"number": 3}) == 3


def test_a_handler_need_not_take_anything_or_may_take_the_context_alone() -> None:
    assert result_of(lambda: "called") == "called"

    def function(context: worker.Context) -> str:
        return context.run_id

    assert result_of(function) == "job-7:20260301T000000Z"


def test_what_the_context_tells() -> None:
    def function(payload: bytes, ctx: worker.Context) -> list[object]:
        assert ctx.due == datetime(2026, 3, 1, tzinfo=UTC)
        assert ctx.deadline == datetime(2026, 3, 1, 0, 2, tzinfo=UTC)
        assert not ctx.cancelled
        assert ctx.payload is payload
        assert isinstance(ctx.log, logging.LoggerAdapter)
        return [ctx.run_id, ctx.job_id, ctx.tenant, ctx.attempt, ctx.max_attempts, ctx.token]

    assert result_of(function, {}) == ["job-7:20260301T000000Z", "job-7", "acme", 1, 3, 9]


def test_cancelled_can_be_waited_for() -> None:
    context = attempt_of(lambda: None).context
    assert not context.wait_cancelled(0.0)
    context.cancel()
    assert context.cancelled
    assert context.wait_cancelled(10.0)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_progress_outside_of_nothing_and_all_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        attempt_of(lambda: None).context.progress(fraction)


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, None),
        ({"rows": 3}, {"rows": 3}),
        (Order(1), {"number": 1, "note": ""}),
        (Item(1), {"number": 1}),
        (Model(number=1), {"number": 1}),
        (datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00Z"),
    ],
    ids=str,
)
def test_results_are_json(value: object, expected: object) -> None:
    assert result_of(lambda: value) == expected


def test_a_result_that_is_no_json_fails_for_good_since_once_more_would_end_the_same() -> None:
    end = outcome_of(object)
    assert (end.outcome, end.permanent) == (Outcome.FAILED, True)
    assert "the result is not JSON" in str(end.error)


@pytest.mark.parametrize("over, truncated", [(0, False), (1, True)])
def test_a_result_is_cut_one_byte_beyond_the_limit(over: int, truncated: bool) -> None:
    value = "x" * (RESULT_MAX_BYTES - 2 + over)
    end = outcome_of(lambda: value)
    assert (end.outcome, end.truncated) == (Outcome.SUCCEEDED, truncated)
    assert len(end.result) <= RESULT_MAX_BYTES
    assert value.startswith(orjson.loads(bytes(end.result)))


def test_a_large_object_becomes_the_beginning_of_its_text() -> None:
    end = outcome_of(lambda: {"rows": ["\x00" * 100_000]})
    assert end.truncated
    assert orjson.loads(bytes(end.result)).startswith('{"rows":["\\u0000')
    assert len(end.result) <= RESULT_MAX_BYTES


def raising(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def test_an_exception_is_a_failure_that_may_be_tried_again() -> None:
    end = outcome_of(raising(KeyError("rows")))
    assert (end.outcome, end.permanent, end.error) == (Outcome.FAILED, False, "KeyError: 'rows'")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_nothing_a_handler_raises_goes_further(error: BaseException) -> None:
    end = outcome_of(raising(error))
    assert end.outcome is Outcome.FAILED
    assert str(end.error).startswith(type(error).__name__)


def test_permanent_and_later() -> None:
    permanent = outcome_of(raising(worker.PermanentError("no such customer")))
    assert (permanent.permanent, permanent.error) == (True, "PermanentError: no such customer")
    later = outcome_of(raising(worker.RetryLater(timedelta(minutes=2), "quota")))
    assert (later.permanent, later.retry_after_ms, later.error) == (False, 120_000, "RetryLater: quota")
    assert worker.RetryLater(0.5).after_ms == 500


@pytest.mark.parametrize("after", [-1, 31 * 86_400, float("nan")])
def test_later_has_limits(after: float) -> None:
    with pytest.raises(ValueError, match="30 days"):
        worker.RetryLater(after)


def test_cancelled_counts_only_when_somebody_asked() -> None:
    assert outcome_of(raising(worker.Cancelled("stopped")), stop=Stop.CANCELLED).outcome is Outcome.CANCELLED
    unasked = outcome_of(raising(worker.Cancelled("stopped")))
    assert (unasked.outcome, unasked.error) == (Outcome.FAILED, "Cancelled: stopped")
    timed_out = outcome_of(raising(worker.Cancelled()), stop=Stop.TIMED_OUT)
    assert (timed_out.outcome, timed_out.error) == (Outcome.FAILED, "timed out after 60 s")
    assert outcome_of(raising(worker.Cancelled()), stop=Stop.SHUTDOWN).outcome is Outcome.HANDED_BACK


def test_an_error_that_cannot_be_read_or_is_no_unicode_is_still_reported() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert outcome_of(raising(Broken())).error == "Broken: (its message cannot be read)"
    assert outcome_of(raising(ValueError("\ud800" + "x" * 3_000))).error == "ValueError: ?" + "x" * 1_987


@pytest.mark.parametrize("name", ["", "with space", "x" * 201, "a/b"])
def test_a_name_that_no_job_could_give_is_refused(name: str) -> None:
    with pytest.raises(InvalidDefinition, match="handler's name"):
        worker.App().handler(name)


def test_a_name_is_registered_once() -> None:
    app = worker.App()
    app.handler("one")(lambda: None)
    with pytest.raises(InvalidDefinition, match="/handlers/one: is registered twice"):
        app.handler("one")


def test_a_signature_that_cannot_be_called_is_refused() -> None:
    def three(a: int, b: int, c: int) -> None: ...

    def keyword(*, payload: int) -> None: ...

    for function in (three, keyword):
        with pytest.raises(InvalidDefinition, match="must take"):
            worker.App().handler("bad")(function)


def test_an_annotation_that_nobody_can_decode_is_refused_at_once() -> None:
    with pytest.raises(InvalidDefinition, match="/handlers/bad/payload: cannot be decoded"):
        worker.App().handler("bad")(echo(complex | Order | Item))


def test_parameters_with_defaults_are_the_handlers_own() -> None:
    def function(payload: int, factor: int = 2) -> int:
        return payload * factor

    assert result_of(function, 4) == 8
