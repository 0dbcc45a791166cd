"""The audit of what requests change."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest
from jsonschema import Draft202012Validator

from noontide.records.topics import load_catalogue
from noontide.testing.builders import every, job
from noontide.testing.memory_stage import MemoryStage

SCHEMA = cast("dict[str, object]", load_catalogue()["audit"].value)


def changes(stage: MemoryStage) -> list[dict[str, Any]]:
    """All records, each as the topic's file describes it."""
    found = [orjson.loads(record.value or b"") for record in stage.records(stage.layout.name("audit"))]
    for each in found:
        Draft202012Validator(SCHEMA).validate(each)
    return found


async def test_a_definition_its_change_and_its_end_say_who_what_before_and_after(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), payload="p-1"), actor="user:ada")
    offset = stage.put(job("a", every("PT20S"), payload="p-2"), actor="token:ci")
    stage.request("a", None, headers={"actor": "user:eve"})
    await stage.run_until_idle()
    created, updated, deleted = changes(stage)
    assert [each["action"] for each in (created, updated, deleted)] == ["created", "updated", "deleted"]
    assert [each["actor"] for each in (created, updated, deleted)] == ["user:ada", "token:ci", "user:eve"]
    assert created["before"] is None
    assert created["after"]["schedule"]["every"] == "PT10S"
    assert updated["before"] == created["after"]
    assert updated["after"]["schedule"]["every"] == "PT20S"
    assert updated["origin"] == f"requests.api/{stage.layout.partition_of('a')}/{offset}"
    assert (deleted["before"], deleted["after"]) == (updated["after"], None)
    assert {each["subject"] for each in (created, updated, deleted)} == {"job/a"}
    assert {each["tenant"] for each in (created, updated, deleted)} == {"default"}


async def test_payloads_and_what_targets_keep_secret_are_not_in_it(stage: MemoryStage) -> None:
    target = {"http": {
        "url": "https://api.example/x?key=s3cret-1", "headers": {"X-Key": "s3cret-2", "Accept": "text/csv"}
    }}  # fmt: skip
    stage.put({"id": "a", "schedule": "0 6 * * *", "target": target, "payload": {"card": "s3cret-3"}}, actor="user:ada")
    stage.request("a", b'{"payload": "s3cret-4", "reason": "asked by a customer"}', headers={"kind": "trigger"})
    await stage.run_until_idle()
    created, triggered = changes(stage)
    assert "s3cret" not in str([created, triggered])
    assert created["after"]["target"]["http"]["url"] == "https://api.example/x?***"
    assert created["after"]["target"]["http"]["headers"] == {"X-Key": "***", "Accept": "text/csv"}
    assert (triggered["action"], triggered["note"]) == ("triggered", "asked by a customer")
    assert triggered["subject"].startswith("run/a:m")


@pytest.mark.parametrize("kind", ["trigger", "cancel", "redrive", "delete", "define"])
async def test_what_is_refused_changes_nothing_and_leaves_no_record(stage: MemoryStage, kind: str) -> None:
    stage.request("a", b'{"run_id": "a:20260301T000010Z", "tenant": 4}', headers={"kind": kind})
    await stage.run_until_idle()
    assert len(stage.rejected()) == 1
    assert changes(stage) == []


async def test_a_new_job_of_nobody_in_particular_is_its_own_record(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S")))
    stage.put(job("a", every("PT20S")))
    await stage.run_until_idle()
    (updated,) = changes(stage)
    assert (updated["action"], updated["before"]["schedule"]["every"]) == ("updated", "PT10S")


async def test_cancels_and_redrives_name_the_run(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.put(job("a", every("PT10S"), overlap="queue"))
    await stage.advance(20_000)
    stage.request("a", b'{"run_id": "a:20260301T000010Z", "reason": "wrong data"}', headers={"kind": "cancel"})
    stage.request("a", b"{}", headers={"kind": "cancel"})
    await stage.run_until_idle()
    one, all_ = changes(stage)
    assert (one["action"], one["subject"], one["note"]) == ("cancelled", "run/a:20260301T000010Z", "wrong data")
    assert (all_["subject"], all_["tenant"]) == ("job/a", "default")
