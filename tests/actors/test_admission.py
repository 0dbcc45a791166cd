"""Requests that are refused, forwarded, or answered."""

from __future__ import annotations

import orjson
import pytest
from tests.actors.lines import DAY_MS, dues_s, history, reasons

from noontide.actors.settings import SchedulerSettings
from noontide.core.cursor import JobState
from noontide.records.topics import Layout
from noontide.testing.builders import every, job
from noontide.testing.memory_stage import MemoryStage

NOT_THERE = {
    "delete": "(document): there is no job 'a'",
    "trigger": "(document): there is no job 'a'",
    "cancel": "/run_id: 'a' is not live: finished, or never claimed",
}
POISON_HEX = ("fffe00", "7b", "5b5d", "226122", "6e756c6c", "efbbbf7b7d", "00000000017b7d")


@pytest.mark.parametrize("value_hex", POISON_HEX)
async def test_a_value_that_is_no_definition_is_rejected_with_its_origin(stage: MemoryStage, value_hex: str) -> None:
    """Case kaf-04."""
    offset = stage.request("a", bytes.fromhex(value_hex))
    stage.put(job("a", every("PT10S")))
    await stage.advance(10_000)
    (line,) = stage.rejected()
    assert line["origin"] == {"topic": "requests.api", "partition": stage.layout.partition_of("a"), "offset": offset}
    assert line["problems"]
    assert line["size"] == len(bytes.fromhex(value_hex))
    assert dues_s(stage) == [10]


@pytest.mark.parametrize("key", [None, "", "a b", "x" * 201, ".", ".."])
async def test_a_key_that_is_no_job_id_is_rejected(stage: MemoryStage, key: str | None) -> None:
    """Case kaf-02."""
    stage.request(key, b"{}")
    stage.put(job("a", every("PT10S")))
    await stage.advance(10_000)
    (line,) = stage.rejected()
    assert line["problems"][0]["pointer"] == "/key"  # type: ignore[index]
    assert dues_s(stage) == [10]


async def test_a_rejected_update_leaves_the_last_accepted_definition_in_force(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), payload=1))
    stage.put(job("a", {"every": "soon"}, payload=2))
    await stage.advance(10_000)
    assert [record.value for record in stage.delivered("orders")] == [b"1"]
    assert stage.rejected()[0]["problems"][0]["pointer"] == "/schedule/every"  # type: ignore[index]


# --- if-match


async def test_if_match_of_the_version_in_force_is_accepted(stage: MemoryStage) -> None:
    offset = stage.put(job("a", every("PT10S"), payload=1))
    etag = f"api-{stage.layout.partition_of('a')}-{offset}"
    stage.put(job("a", every("PT10S"), payload=2), if_match=etag)
    await stage.run_until_idle()
    assert stage.rejected() == []
    assert stage.jobs()["a"]["payload"] == 2


@pytest.mark.parametrize("if_match", ["api-0-99", '"api-0-99"'])
async def test_if_match_of_another_version_is_refused(stage: MemoryStage, if_match: str) -> None:
    stage.put(job("a", every("PT10S"), payload=1))
    stage.put(job("a", every("PT10S"), payload=2), if_match=if_match)
    stage.delete("a", if_match=if_match)
    await stage.run_until_idle()
    assert len(reasons(stage)) == 2
    assert all("if-match" in reason for reason in reasons(stage))
    assert stage.jobs()["a"]["payload"] == 1


async def test_if_match_star_means_it_must_exist(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S")), if_match="*")
    stage.put(job("b", every("PT10S")))
    stage.put(job("b", every("PT20S")), if_match="*")
    await stage.run_until_idle()
    assert list(stage.jobs()) == ["b"]
    assert "none is in force" in reasons(stage)[0]


async def test_of_two_updates_with_one_version_the_first_wins(stage: MemoryStage) -> None:
    offset = stage.put(job("a", every("PT10S"), payload=0))
    etag = f"api-{stage.layout.partition_of('a')}-{offset}"
    stage.put(job("a", every("PT10S"), payload=1), if_match=etag)
    stage.put(job("a", every("PT10S"), payload=2), if_match=etag)
    await stage.run_until_idle()
    assert stage.jobs()["a"]["payload"] == 1
    assert len(stage.rejected()) == 1


# --- tenants and domains


async def test_another_tenants_id_is_refused_and_nothing_is_revealed(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), tenant="billing", payload="secret"))
    stage.put(job("a", every("PT20S"), tenant="mallory"))
    await stage.run_until_idle()
    assert stage.jobs()["a"]["tenant"] == "billing"
    (reason,) = reasons(stage)
    assert reason == "/id: this id is not available"


@pytest.mark.parametrize("kind", ["delete", "trigger", "cancel"])
async def test_commands_that_name_another_tenant_are_refused(stage: MemoryStage, kind: str) -> None:
    stage.put(job("a", every("PT10S"), tenant="billing"))
    stage.request("a", b"{}", headers={"kind": kind, "tenant": "mallory"})
    await stage.run_until_idle()
    assert list(stage.jobs()) == ["a"]
    assert stage.delivered("orders") == []
    assert reasons(stage) == [NOT_THERE[kind]]


@pytest.mark.parametrize("kind", ["delete", "trigger", "cancel", "redrive", "define"])
async def test_an_answer_gives_no_hint_that_another_tenants_job_is_there(kind: str) -> None:
    """The same words, and no ETag, whether there is such a job or not."""
    bodies = {"redrive": b'{"run_id": "a:20260301T000010Z"}', "define": orjson.dumps(job("a", every("PT10S")))}
    found = []
    for existing in ("a", "another"):
        async with MemoryStage() as stage:
            stage.register("orders")
            stage.put(job(existing, every("PT10S"), tenant="billing"))
            headers = {"kind": kind, "tenant": "mallory", "if-match": "api-1-1"}
            stage.request("a", bodies.get(kind, b"{}"), headers=headers)
            await stage.run_until_idle()
            found += reasons(stage)
    assert len(found) == 2
    assert found[0] == found[1]


async def test_a_definition_is_for_the_tenant_that_the_request_names(stage: MemoryStage) -> None:
    stage.request("a", orjson.dumps(job("a", every("PT10S"))), headers={"tenant": "billing"})
    stage.request("b", orjson.dumps(job("b", every("PT10S"), tenant="other")), headers={"tenant": "billing"})
    await stage.run_until_idle()
    assert {job_id: found["tenant"] for job_id, found in stage.jobs().items()} == {"a": "billing"}
    assert reasons(stage) == ["/tenant: is not the tenant that the sender may speak for"]


async def test_runs_of_a_deleted_job_stay_with_its_tenant(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", every("PT10S"), to="elsewhere", tenant="billing"))
    await stage.advance(10_000)
    stage.request("a", None)
    stage.request("a", b"{}", headers={"kind": "cancel", "tenant": "mallory"})
    await stage.run_until_idle()
    assert reasons(stage) == [NOT_THERE["cancel"]]


async def test_a_domain_speaks_for_its_tenants_only() -> None:
    async with MemoryStage(domains=["shop"]) as stage:
        stage.register("orders")
        stage.configure("domain/shop", {"tenants": ["shop"]})
        stage.put(job("mine", every("PT10S"), tenant="shop"), domain="shop")
        stage.put(job("theirs", every("PT10S"), tenant="billing"), domain="shop")
        await stage.run_until_idle()
        assert list(stage.jobs()) == ["mine"]
        assert reasons(stage) == ["/tenant: the domain 'shop' may not speak for 'billing'"]


@pytest.mark.parametrize("kind", ["delete", "trigger", "cancel"])
async def test_a_domain_cannot_command_jobs_of_others(kind: str) -> None:
    async with MemoryStage(domains=["shop"]) as stage:
        stage.register("orders")
        stage.configure("domain/shop", {"tenants": ["shop"]})
        stage.put(job("a", every("PT10S"), tenant="billing"))
        stage.request("a", b"{}", domain="shop", headers={"kind": kind})
        stage.put(job("a", every("PT10S"), tenant="shop"), domain="shop")
        await stage.run_until_idle()
        assert sorted(reasons(stage)) == sorted([NOT_THERE[kind], "/id: this id is not available"])
        assert stage.delivered("orders") == []


async def test_a_registered_topic_is_for_its_tenants(stage: MemoryStage) -> None:
    stage.register("private", tenants=["billing"])
    stage.put(job("a", every("PT10S"), to="private", tenant="billing"))
    stage.put(job("b", every("PT10S"), to="private", tenant="mallory"))
    await stage.run_until_idle()
    assert list(stage.jobs()) == ["a"]
    assert reasons(stage) == ["/target/topic/name: 'private' is not open to 'mallory'"]


@pytest.mark.parametrize("topic", ["noontide.jobs", "noontide.state", "__consumer_offsets"])
async def test_our_own_topics_are_no_targets(stage: MemoryStage, topic: str) -> None:
    stage.put(job("a", every("PT10S"), to=topic))
    await stage.run_until_idle()
    assert stage.jobs() == {}
    assert "/target" in reasons(stage)[0]


# --- configuration that is not known yet


async def test_an_unknown_calendar_is_refused_only_by_fresh_configuration(stage: MemoryStage) -> None:
    stage.configure("calendar/holidays", {"dates": ["2026-12-25"]}, unnoticed=True)
    assert "holidays" not in stage.config.calendars
    stage.put(job("a", every("PT1H"), calendar={"exclude": ["holidays"]}))
    stage.put(job("b", every("PT1H"), calendar={"exclude": ["nowhere"]}))
    await stage.slots[0].step()
    assert list(stage.jobs()) == ["a"]
    assert reasons(stage) == ["/calendar: no calendar is called 'nowhere'"]
    assert stage.config.calendars.keys() == {"holidays"}


async def test_a_domain_that_was_opened_a_moment_ago_is_heard() -> None:
    async with MemoryStage(domains=["shop"]) as stage:
        stage.configure("domain/shop", {"tenants": []})
        stage.configure("domain/shop", {"tenants": ["billing"]}, unnoticed=True)
        stage.put(job("a", every("PT1H"), tenant="billing"), domain="shop")
        await stage.slots[0].step()
        assert list(stage.jobs()) == ["a"]


# --- verdicts


async def test_a_verdict_is_kept_for_those_who_ask(stage: MemoryStage) -> None:
    partition = stage.layout.partition_of("a")
    good = stage.put(job("a", every("PT10S")), verdict="1")
    bad = stage.put(job("a", {"every": "soon"}), verdict="1")
    silent = stage.put(job("a", every("PT20S")))
    gone = stage.delete("a", verdict="1")
    await stage.run_until_idle()
    found = stage.verdicts()
    assert found.keys() == {f"requests.api/{partition}/{offset}" for offset in (good, bad, gone)}
    assert silent not in (good, bad, gone)
    accepted, refused = (found[f"requests.api/{partition}/{offset}"] for offset in (good, bad))
    assert (accepted["verdict"], accepted["etag"]) == ("accepted", f"api-{partition}-{good}")
    assert refused["verdict"] == "refused"
    assert refused["problems"][0]["pointer"] == "/schedule/every"  # type: ignore[index]


@pytest.mark.parametrize("from_log_alone", [True, False])
async def test_verdicts_are_forgotten_after_a_day(stage: MemoryStage, from_log_alone: bool) -> None:
    stage.put(job("a", every("P1D")), verdict="1")
    await stage.run_until_idle()
    await stage.crash(from_log_alone=from_log_alone)
    await stage.advance(DAY_MS - 1)
    await stage.run_until_idle()
    assert len(stage.verdicts()) == 1
    await stage.advance(60_001)
    assert stage.verdicts() == {}


async def test_verdicts_are_swept_in_pieces() -> None:
    async with MemoryStage(settings=SchedulerSettings(forgotten_max=2)) as stage:
        for number in range(5):
            stage.put(job(f"j{number}", every("P7D")), verdict="1")
        await stage.advance(DAY_MS)
        for left in (3, 1, 0):
            await stage.jump(60_001)
            assert len(stage.verdicts()) == left


# --- requests in a wrong partition

TWO_SLOTS = Layout(partitions=8, slots=2)


def _misplaced(stage: MemoryStage, job_id: str, *, other_slot: bool = True) -> int:
    home = stage.layout.partition_of(job_id)
    mine = stage.layout.slot_of(home)
    return next(
        number
        for number in range(stage.layout.partitions)
        if number != home and (stage.layout.slot_of(number) != mine) is other_slot
    )


@pytest.mark.parametrize("other_slot", [True, False])
async def test_a_misrouted_request_is_forwarded_home(other_slot: bool) -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.register("orders")
        at = _misplaced(stage, "a", other_slot=other_slot)
        offset = stage.request("a", _bytes(job("a", every("PT10S"))), partition=at, headers={"verdict": "1"})
        await stage.advance(10_000)
        assert dues_s(stage) == [10]
        assert stage.verdicts().keys() == {f"requests.api/{at}/{offset}"}
        (record,) = stage.records("noontide.jobs")
        assert record.partition == stage.layout.partition_of("a")
        assert dict(record.headers)["etag"] == f"api-{at}-{offset}".encode()
        assert sum(each.slot.counts["misrouted"] for each in stage.slots) == 1


async def test_a_forwarded_request_counts_from_when_it_was_written() -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.register("orders")
        stage.request("a", _bytes(job("a", every("PT10S"))), partition=_misplaced(stage, "a"))
        await stage.jump(3_000)
        await stage.advance(7_000)
        assert dues_s(stage) == [10]


@pytest.mark.parametrize("late_ms", [0, 1])
async def test_a_forwarded_request_older_than_what_is_in_force_is_stale(late_ms: int) -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.register("orders")
        stage.request("a", _bytes(job("a", every("PT10S"), payload="old")), partition=_misplaced(stage, "a"))
        stage.clock.advance(late_ms)
        stage.put(job("a", every("PT10S"), payload="new"))
        await stage.run_until_idle()
        assert stage.jobs()["a"]["payload"] == "new"
        assert ["stale" in reason for reason in reasons(stage)] == [True]


async def test_a_forwarded_request_younger_than_what_is_in_force_wins() -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.put(job("a", every("PT10S"), payload="old"))
        stage.clock.advance(1)
        stage.request("a", _bytes(job("a", every("PT10S"), payload="new")), partition=_misplaced(stage, "a"))
        await stage.run_until_idle()
        assert stage.jobs()["a"]["payload"] == "new"
        assert stage.rejected() == []


async def test_a_stale_copy_does_not_raise_a_deleted_job() -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.register("orders")
        stage.put(job("a", every("PT10S")))
        await stage.run_until_idle()
        stage.request("a", _bytes(job("a", every("PT10S"))), partition=_misplaced(stage, "a"))
        stage.clock.advance(1)
        stage.delete("a")
        await stage.advance(60_000)
        assert stage.jobs() == {}
        assert history(stage, "a") == []
        assert stage.cursor("a").state is JobState.DELETED  # type: ignore[union-attr]
        assert len(stage.rejected()) == 1


async def test_forwarding_survives_crashes_without_doubling() -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.register("orders")
        at = _misplaced(stage, "a")
        stage.request("a", _bytes(job("a", every("PT10S"))), partition=at)
        sender = stage.slots[stage.layout.slot_of(at)]
        await sender.step()
        await stage.crash(from_log_alone=True)
        await stage.crash()
        await stage.advance(10_000)
        assert dues_s(stage) == [10]
        assert len(stage.records("noontide.signals")) == 1


async def test_a_misrouted_trigger_keeps_its_kind() -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.register("orders")
        stage.put(job("a", every("PT1H")))
        await stage.run_until_idle()
        stage.clock.advance(1)
        at = _misplaced(stage, "a")
        offset = stage.request("a", b"{}", partition=at, headers={"kind": "trigger"})
        await stage.run_until_idle()
        assert stage.run_ids("orders") == [f"a:m{offset}-api-{at}"]


def _bytes(document: dict[str, object]) -> bytes:

    return orjson.dumps(document)
