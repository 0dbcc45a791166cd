"""Names of jobs and runs."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from noontide.core.errors import InvalidDefinition
from noontide.core.ids import (
    ManualRunId,
    OccurrenceRunId,
    id_from_idempotency_key,
    is_job_id,
    manual_run_id,
    parse_job_id,
    parse_run_id,
    run_id,
)
from noontide.core.instants import parse_instant

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parents[1] / "cases/behaviour.jsonl").read_text().splitlines())
}
DUE_MS = parse_instant("2026-03-01T02:00:00Z", zone=None, pointer="")


@pytest.mark.parametrize(
    "job_id",
    [
        "a", "A", "nightly-report", "scan.v1", "~team:job@host_1", "...", "CON", "a" * 200,
        "0198c0de-7000-7000-8000-000000000000",
    ],
)  # fmt: skip
def test_legal_job_ids(job_id: str) -> None:
    assert parse_job_id(job_id, "/id") == job_id


@pytest.mark.parametrize(
    "job_id",
    ["", ".", "..", "a" * 201, "my scan.v1", "日本語", "🚀", "a\nb", "a\n", "%2e%2e", " a ", "a+b", '"test"', "a&b=c",
     "a#b", "a?b", "a/b", "a\x00", "ａ", None, 1, True, ["a"]],
)  # fmt: skip
def test_illegal_job_ids_are_refused_with_the_legal_form(job_id: object) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        parse_job_id(job_id, "/id")
    (problem,) = refused.value.problems
    assert problem.pointer == "/id"
    assert "1 to 200 characters of A-Z a-z 0-9 . _ ~ : @ -" in problem.message


def test_of_the_cases_only_ids_that_need_no_encoding_are_accepted() -> None:
    given = [*CASES["ids-01"]["input"]["ids"], *CASES["ids-03"]["input"]["ids"]]
    plain = [text for text in given if text == "CON" or set(text) == {"a"}]
    assert [text for text in given if is_job_id(text)] == plain


def test_the_id_of_a_run_names_job_and_nominal_time() -> None:
    assert run_id("nightly", DUE_MS, 1) == "nightly:20260301T020000Z"
    assert run_id("nightly", DUE_MS - 1, 1) == "nightly:20260301T015959.999Z"
    assert run_id("nightly", DUE_MS + 1, 1) == "nightly:20260301T020000.001Z"
    assert run_id("nightly", DUE_MS, 2) == "nightly:20260301T020000Z~2"
    assert run_id("nightly", DUE_MS, 3) == "nightly:20260301T020000Z~3"
    assert manual_run_id("nightly", 4711) == "nightly:m4711"


@pytest.mark.parametrize("job_id", ["a", "a:20260301T020000Z", "a:m1", "x~2", "@:~"])
@pytest.mark.parametrize("due_ms", [0, 999, DUE_MS, DUE_MS + 250, -62_135_596_800_000, 253_402_300_799_999])
@pytest.mark.parametrize("generation", [1, 2, 10])
def test_a_run_id_is_taken_apart_again(job_id: str, due_ms: int, generation: int) -> None:
    text = run_id(job_id, due_ms, generation)
    assert parse_run_id(text, "") == OccurrenceRunId(job_id=job_id, due_ms=due_ms, generation=generation)


def test_a_manual_run_id_is_taken_apart_again() -> None:
    assert parse_run_id("a:b:m0", "") == ManualRunId(job_id="a:b", offset=0)
    assert parse_run_id("a:m7-public-12", "") == ManualRunId(job_id="a", offset=7, source="public-12")
    assert manual_run_id("a", 7, "public-12") == "a:m7-public-12"


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:", ":20260301T020000Z", "..:m1", "a:m", "a:m01", "a:m-1", "a:20260301T020000", "a:20260301T020000Z~1",
     "a:20260301T020000Z~", "a:20260301T020000Z~02", "a:20260301T020000.000Z", "a:20260301T020000.5Z",
     "a:20260230T020000Z", "a:20260301T240000Z", "a:00000301T020000Z", "a b:m1", "a:m1\n", "a:m١", None, 5],
)  # fmt: skip
def test_what_nobody_wrote_is_no_run_id(text: object) -> None:
    with pytest.raises(InvalidDefinition, match="is not a run id"):
        parse_run_id(text, "/run_id")


def test_an_idempotency_key_always_makes_the_same_id_of_its_tenant() -> None:
    made = id_from_idempotency_key("billing", "order-1")
    assert made == "a14bbcc4-093c-527c-b6b9-6c1adeb90e12"  # never changes: a retried create must find its job
    assert UUID(made).version == 5
    assert is_job_id(made)
    assert made == id_from_idempotency_key("billing", "order-1")
    assert made != id_from_idempotency_key("billing", "order-2")
    assert made != id_from_idempotency_key("shop", "order-1")
    assert id_from_idempotency_key("a", "bc") != id_from_idempotency_key("ab", "c")
