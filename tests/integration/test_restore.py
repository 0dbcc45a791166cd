"""What a restart must not do: fire twice, forget, or stop at what it cannot read. New config counts meanwhile."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.expectations import due_ms, instant_ms
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess


class Site(NamedTuple):
    """An installation and a scheduler that is not started yet."""

    installation: Installation
    orders: str
    scheduler: SchedulerProcess

    def once(self, run_at: datetime | str, **fields: object) -> dict[str, object]:
        """A one-off on the registered topic."""
        at = run_at if isinstance(run_at, str) else run_at.isoformat()
        return {"run_at": at, "target": f"kafka://{self.orders}", **fields}

    def state(self, job_id: str) -> object:
        """State of a job's cursor."""
        cursor = self.installation.log("state").latest(f"cursor/{job_id}")
        return None if cursor is None else cursor.document["state"]

    def alive(self) -> None:
        """Every partition carries out a new request."""
        for partition in range(self.installation.layout.partitions):
            names = (f"alive-{uuid.uuid4().hex}" for _ in range(1_000))
            job_id = next(name for name in names if self.installation.layout.partition_of(name) == partition)
            self.installation.request(job_id, self.once("2026-01-01T00:00:00Z"))
            self.installation.log(self.orders).of_key(job_id)

    def delivered(self, job_id: str) -> int:
        """Records of a job so far."""
        return self.installation.log(self.orders).count(job_id)


@pytest.fixture
def site(kafka: RunningKafka, prefix: str, tmp_path: Path) -> Iterator[Site]:
    with Installation.create(kafka.bootstrap, prefix) as installation:
        orders = installation.create_target("orders")
        with SchedulerProcess(installation, tmp_path / "data") as scheduler:
            yield Site(installation, orders, scheduler)
            assert "unexpected; replaying" not in scheduler.log


def now() -> datetime:
    return datetime.now(UTC)


def restart(site: Site, *, wipe: bool = False) -> None:
    assert site.scheduler.terminate() == 0
    if wipe:
        shutil.rmtree(site.scheduler.data)
    site.scheduler.start().until_owner()


def test_a_one_off_in_the_past(site: Site) -> None:
    """mis-09, mis-10: once, at once; `skip` records it as missed; neither again after a restart."""
    installation = site.installation
    site.scheduler.start().until_owner()
    past = now() - timedelta(minutes=2)
    installation.request("run-late", site.once(past))
    installation.request("skip-late", site.once(past, misfire="skip"))
    installation.log(site.orders).of_key("run-late")
    skipped = installation.log("executions").until(
        lambda found: [each for each in found if each.document["job_id"] == "skip-late"]
    )
    assert [each.document["state"] for each in skipped if each.document["job_id"] == "skip-late"] == ["missed"]
    for wipe in (False, True):
        restart(site, wipe=wipe)
        site.alive()
    assert site.delivered("run-late") == 1
    assert site.delivered("skip-late") == 0
    history = [each.document["job_id"] for each in installation.log("executions").look()]
    assert history.count("run-late") == history.count("skip-late") == 1


@pytest.mark.slow
def test_down_while_due(site: Site) -> None:
    """mis-13, mis-05: what fell due while nobody was there is judged by its rule, once, at the start."""
    installation = site.installation
    site.scheduler.start().until_owner()
    interval = {"schedule": {"every": "PT1S"}, "timing": "exact", "grace": "PT0.5S", "target": f"kafka://{site.orders}"}
    due = now() + timedelta(seconds=1.5)
    installation.request("one-off", site.once(due, grace="PT0.1S"))
    for rule in ("run_once", "run_all", "skip"):
        installation.request(rule, {**interval, "misfire": rule})
    for rule in ("run_once", "run_all", "skip"):
        installation.log(site.orders).of_key(rule)
    site.scheduler.terminate()
    down_ms = time.time_ns() // 1_000_000
    eventually(lambda: time.time_ns() // 1_000_000 > down_ms + 3_500, what="time passes while nobody works")
    site.scheduler.start().until_owner()
    up_ms = time.time_ns() // 1_000_000
    for rule in ("run_once", "run_all", "skip"):
        until_on_time(site, rule, after_ms=up_ms + 500)
    (late,) = installation.log(site.orders).of_key("one-off")
    assert due_ms(late) == instant_ms(due.isoformat(timespec="milliseconds"))
    for rule, decision in (("run_once", "coalesced"), ("run_all", None), ("skip", "missed")):
        check_rule(site, rule, decision)


def until_on_time(site: Site, job_id: str, *, after_ms: int) -> None:
    """Two more runs that fell due after a time."""
    key = job_id.encode()
    site.installation.log(site.orders).until(
        lambda found: sum(each.key == key and due_ms(each) > after_ms for each in found) >= 2
    )


def check_rule(site: Site, rule: str, decision: str | None) -> None:
    """Every second is a record or part of one decision of the right kind, and none is both."""
    records = [each for each in site.installation.log(site.orders).look() if each.key == rule.encode()]
    ran = [due_ms(each) for each in records]
    assert ran == sorted(ran), "in order"
    decided: list[int] = []
    for line in site.installation.log("executions").look():
        found = line.document
        if found["job_id"] == rule and found["state"] != "succeeded":
            assert found["state"] == decision, found
            first, last = instant_ms(found["due"]), instant_ms(found.get("until", found["due"]))
            assert (last - first) // 1_000 + 1 == found.get("count", 1)
            decided += range(first, last + 1, 1_000)
    assert bool(decided) == (decision is not None)
    assert sorted(ran + decided) == list(range(min(ran), max(ran) + 1, 1_000)), rule


@pytest.mark.slow
def test_a_request_that_waited_is_decided_before_anything_fires(site: Site) -> None:
    """A delete written while nobody worked holds for what fell due after it, also at the start."""
    installation = site.installation
    site.scheduler.start().until_owner()
    due = now() + timedelta(seconds=2)
    installation.request("doomed", site.once(due))
    installation.request("kept", site.once(due))
    installation.log("jobs").of_key("doomed")
    installation.log("jobs").of_key("kept")
    site.scheduler.terminate()
    installation.request("doomed", None)
    eventually(lambda: now() > due + timedelta(seconds=0.2), what="it is due")
    site.scheduler.start().until_owner()
    installation.log(site.orders).of_key("kept")
    site.alive()
    assert site.delivered("doomed") == 0


def test_a_definition_that_can_no_longer_be_read(site: Site) -> None:
    """cron-59 in spirit: a definition on `jobs` with a zone that this version does not know; the others run."""
    installation = site.installation
    site.scheduler.start().until_owner()
    interval = {"schedule": {"every": "PT1S"}, "timing": "exact", "target": f"kafka://{site.orders}"}
    for job_id in ("bad", "good"):
        installation.request(job_id, interval)
        installation.log(site.orders).of_key(job_id)
    site.scheduler.terminate()
    (accepted,) = installation.log("jobs").of_key("bad")
    planted = orjson.dumps({**accepted.document, "timezone": "Mars/Phobos"})
    headers = list(accepted.headers.items())
    installation.produce(
        installation.name("jobs"), key=b"bad", value=planted, headers=headers, partition=accepted.partition
    )
    site.scheduler.start().until_owner()
    eventually(lambda: site.state("bad") == "quarantined", what="the bad one is quarantined")
    cursor = installation.log("state").latest("cursor/bad")
    assert cursor is not None
    assert cursor.document["reason"]
    site.alive()
    restart(site, wipe=True)
    before = site.delivered("good")
    installation.log(site.orders).of_key("good", before + 2)
    site.alive()
    installation.request("bad", {**interval, "payload": "healed"})
    installation.log(site.orders).until(lambda found: any(each.value == b'"healed"' for each in found))


def test_records_of_a_stranger_on_our_own_topics(site: Site) -> None:
    """Nobody but owners may write there; if somebody does, the rest goes on."""
    installation = site.installation
    site.scheduler.start().until_owner()
    site.alive()
    site.scheduler.terminate()
    for key, value in (
        (b"cursor/x", b"{"),
        (b"cursor/y", b"{}"),
        (b"what/ever", b"?"),
        (b"\xff", b"\xff"),
        (b"run/x", b"{}"),
    ):
        installation.produce(installation.name("state"), key=key, value=value, partition=0)
    installation.produce(installation.name("jobs"), key=b"stranger", value=b"{}", partition=0)
    installation.produce(installation.name("leases"), key=b"x", value=b"{", partition=0)
    site.scheduler.start().until_owner()
    site.alive()


def test_config_just_before_the_definitions_that_need_it(site: Site) -> None:
    """A calendar, a target and a tenant of a domain, added while a scheduler takes over and while it works."""
    installation = site.installation
    site.scheduler.start()
    for number in range(6):
        topic = installation.create_topic(f"later-{number}")
        installation.configure(f"calendar/cal-{number}", {"dates": ["2030-01-01"]})
        installation.configure(f"target/later-{number}", {"topic": topic})
        installation.configure("domain/public", {"tenants": [f"tenant-{number}"]})
        fields = {"calendar": {"exclude": [f"cal-{number}"]}, "tenant": f"tenant-{number}"}
        installation.request(f"needs-{number}", {**site.once(now()), **fields, "target": f"kafka://{topic}"})
        (record,) = installation.log(topic).of_key(f"needs-{number}")
        execution = installation.log("executions").of_key(record.run_id)[0].document
        assert "token" not in execution or execution["token"] == 0, "written in the claim's own transaction"
    assert installation.log("rejected").look() == []


def test_config_that_makes_no_sense(site: Site) -> None:
    """Records on `config` that cannot be understood leave what was there before."""
    installation = site.installation
    site.scheduler.start().until_owner()
    installation.configure("domain/not-created-yet", {"tenants": "*"})
    installation.configure("domain/Not.A.Name", {"tenants": "*"})
    installation.configure("target/orders", b"{")
    installation.configure("target/nonsense", {"topic": "no topic !"})
    installation.configure("calendar/nonsense", {"dates": "x"})
    installation.configure("what/ever", b"\xff")
    installation.produce(installation.name("config"), key=b"\xff\xfe", value=b"{}", partition=0)
    installation.produce(installation.name("config"), key=b"", value=b"[]", partition=0)
    site.alive()
    restart(site)
    site.alive()
