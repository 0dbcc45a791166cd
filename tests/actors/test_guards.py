"""Idempotency keys, verdicts, and requests that may only make something new."""

from __future__ import annotations

import pytest

from noontide.core.cursor import JobState
from noontide.testing.builders import every, job
from noontide.testing.memory_stage import MemoryStage

DAY_MS = 86_400_000
Json = dict[str, object]


def verdicts(stage: MemoryStage) -> list[Json]:
    """All verdicts, in the order of their requests (which are about jobs of one partition)."""
    found = stage.verdicts()
    return [found[name] for name in sorted(found, key=lambda name: int(name.rpartition("/")[2]))]


def put(stage: MemoryStage, document: Json, **headers: str) -> int:
    return stage.put(document, verdict="1", **headers)


def create(stage: MemoryStage, document: Json, key: str = "k") -> int:
    return put(stage, document, if_none_match="*", idempotency_key=key)


async def test_the_same_request_again_changes_nothing_and_hears_the_same(stage: MemoryStage) -> None:
    create(stage, job("a", every("PT10S")))
    await stage.run_until_idle()
    create(stage, dict(reversed(job("a", every("PT10S")).items())))
    await stage.run_until_idle()
    first, second = verdicts(stage)
    assert second == {**first, "at": second["at"], "repeated": True}
    assert len([each for each in stage.records(stage.layout.name("jobs")) if each.key == b"a"]) == 1


async def test_it_may_come_in_the_same_cycle(stage: MemoryStage) -> None:
    for _ in range(2):
        create(stage, job("a", every("PT10S")))
    await stage.run_until_idle()
    assert [each.get("repeated", False) for each in verdicts(stage)] == [False, True]


async def test_the_same_key_with_another_body_is_a_conflict(stage: MemoryStage) -> None:
    put(stage, job("a", every("PT10S")), idempotency_key="k")
    put(stage, job("a", every("PT20S")), idempotency_key="k")
    await stage.run_until_idle()
    refused = verdicts(stage)[1]
    assert (refused["verdict"], refused["refusal"]) == ("refused", "conflict")
    assert refused["problems"][0]["pointer"] == "/idempotency_key"  # type: ignore[index]


async def test_a_refused_request_does_not_use_its_key_up(stage: MemoryStage) -> None:
    put(stage, job("a", {"every": "soon"}), idempotency_key="k")
    put(stage, job("a", every("PT20S")), idempotency_key="k")
    await stage.run_until_idle()
    assert [each["verdict"] for each in verdicts(stage)] == ["refused", "accepted"]


async def test_a_key_triggers_once_and_names_the_same_run(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H")))
    headers = {"kind": "trigger", "verdict": "1", "idempotency_key": "k"}
    offsets = [stage.request("a", b"{}", headers=headers) for _ in range(2)]
    await stage.run_until_idle()
    assert [each["run_id"] for each in verdicts(stage)] == [f"a:m{offsets[0]}"] * 2
    assert stage.run_ids("orders") == [f"a:m{offsets[0]}"]


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_keys_and_verdicts_survive_a_crash(stage: MemoryStage, from_log_alone: bool) -> None:
    create(stage, job("a", every("PT10S")))
    await stage.run_until_idle()
    await stage.crash(from_log_alone=from_log_alone)
    create(stage, job("a", every("PT10S")))
    await stage.run_until_idle()
    assert verdicts(stage)[1]["repeated"] is True


def state_of(stage: MemoryStage) -> JobState | None:
    cursor = stage.cursor("a")
    return None if cursor is None else cursor.state


async def test_a_key_outlives_its_job_but_not_for_ever(stage: MemoryStage) -> None:
    create(stage, job("a", every("P1D")))
    await stage.advance(20 * DAY_MS)
    stage.delete("a")
    await stage.advance(3 * DAY_MS)
    create(stage, job("a", every("P1D")))
    await stage.run_until_idle()
    assert state_of(stage) is JobState.DELETED
    await stage.advance(9 * DAY_MS)
    create(stage, job("a", every("P1D")))
    await stage.run_until_idle()
    assert state_of(stage) is JobState.ACTIVE


async def test_what_must_be_new_replaces_nothing(stage: MemoryStage) -> None:
    put(stage, job("a", every("PT10S")), if_none_match="*")
    put(stage, job("a", every("PT20S")), if_none_match="*")
    await stage.run_until_idle()
    assert [each.get("refusal") for each in verdicts(stage)] == [None, "conflict"]


async def test_refusals_say_why_for_programs(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H")))
    stage.request("nobody", b"{}", headers={"kind": "trigger", "verdict": "1"})
    put(stage, job("a", every("PT20S")), if_match="other")
    put(stage, job("a", every("PT20S"), payload="x" * 300_000))
    put(stage, job("a", {"every": "soon"}))
    await stage.run_until_idle()
    found = {each.get("refusal") for each in stage.verdicts().values()}
    assert found == {"not-found", "stale-version", "too-large", None}
