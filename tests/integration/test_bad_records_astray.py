"""Requests that come the wrong way: in a wrong partition, in transactions, for a tenant that is somebody else's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import confluent_kafka as ck
import orjson
import pytest
from tests.conftest import RunningKafka
from tests.integration.bad_records_site import Running, check_alive, id_in, rejections, running_scheduler
from tests.integration.installation import Installation


@pytest.fixture(scope="module")
def running(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_scheduler(kafka.bootstrap, tmp_path_factory.mktemp("bad")) as made:
        yield made


def test_a_request_in_the_wrong_partition_is_forwarded(running: Running) -> None:
    installation, _, _ = running
    layout = installation.layout
    for wrong in range(layout.partitions):
        job_id = id_in(layout, (wrong + 3) % layout.partitions, start=f"astray-{wrong}")
        installation.request(
            job_id, running.once(payload=wrong), partition=wrong, headers=[("x", None), ("y", b"\xff")]
        )
        (record,) = installation.log(running.orders).of_key(job_id)
        assert record.value == b"%d" % wrong
        job = installation.log("jobs").of_key(job_id)[0]
        assert job.partition == layout.partition_of(job_id)
        installation.request(job_id, None, partition=wrong)
        accepted = installation.log("jobs").of_key(job_id, 2)
        assert accepted[1].value is None


def test_forwarded_requests_are_applied_once_across_restarts(running: Running) -> None:
    """Triggers in wrong partitions: one run each, however often the scheduler starts again."""
    installation, _, scheduler = running
    jobs = [f"hand-{number}" for number in range(40)]
    schedule = {"schedule": {"every": "P30D"}, "timing": "exact", "target": f"kafka://{running.orders}"}
    installation.request_many(dict.fromkeys(jobs, schedule))
    installation.log("jobs").until(lambda found: {each.encode() for each in jobs} <= {each.key for each in found})
    for job_id in jobs:
        wrong = (installation.layout.partition_of(job_id) + 1) % installation.layout.partitions
        installation.request(job_id, b"{}", kind="trigger", partition=wrong)
    for _ in range(2):
        installation.log(running.orders).look()
        runs = triggered(installation, running.orders, len(jobs))
        assert len(runs) == len(set(runs)) == len(jobs)
        assert scheduler.terminate() == 0
        scheduler.start().until_owner()
        for partition in range(installation.layout.partitions):
            check_alive(running, partition)
    installation.log(running.orders).look()
    assert len(triggered(installation, running.orders, len(jobs))) == len(jobs)


def triggered(installation: Installation, topic: str, count: int) -> list[str]:
    found = installation.log(topic).until(lambda all_: sum(each.run_id.startswith("hand-") for each in all_) >= count)
    return [each.run_id for each in found if each.run_id.startswith("hand-")]


def test_a_stale_copy_in_a_wrong_partition_is_refused(running: Running) -> None:
    """It was written before the version in force, and arrives later: hung in a transaction that commits at the end."""
    installation, _, _ = running
    layout = installation.layout
    job_id = id_in(layout, 5, start="stale")
    topic = installation.name("requests.hung")
    with transaction(installation) as producer:
        producer.produce(topic, orjson.dumps(running.once(payload="old")), job_id.encode(), partition=1)
        producer.flush()
        installation.request(job_id, running.once(payload="new"), domain="hung")
        installation.log(running.orders).of_key(job_id)
        producer.commit_transaction()
    offset = next(each.offset for each in installation.log("requests.hung").of_key(job_id, 2) if each.partition == 1)
    (rejected,) = rejections(installation, [(1, offset)], domain="hung")
    assert "stale" in str(rejected.document["reason"])
    assert installation.log(running.orders).count(job_id) == 1
    (record,) = installation.log(running.orders).of_key(job_id)
    assert record.value == b'"new"'


class transaction:  # noqa: N801 - reads like a statement
    """A transactional producer of a foreign service, inside a transaction; aborts what was not committed."""

    def __init__(self, installation: Installation) -> None:
        settings = {"bootstrap.servers": installation.bootstrap, "transactional.id": f"foreign-{uuid.uuid4().hex}"}
        self._producer = ck.Producer({**settings, "partitioner": "murmur2_random", "log_level": 2})

    def __enter__(self) -> ck.Producer:
        self._producer.init_transactions(15)
        self._producer.begin_transaction()
        return self._producer

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._producer.abort_transaction(15)


def test_transactions_of_one_record_each(running: Running) -> None:
    """kaf-05: offsets have holes; aborted ones are never seen."""
    installation, _, scheduler = running
    topic = installation.name("requests.public")
    settings = {"bootstrap.servers": installation.bootstrap, "transactional.id": f"foreign-{uuid.uuid4().hex}"}
    producer = ck.Producer({**settings, "partitioner": "murmur2_random", "log_level": 2})
    producer.init_transactions(15)
    for number in range(20):
        producer.begin_transaction()
        name = "aborted" if number % 3 == 0 else "committed"
        producer.produce(topic, orjson.dumps(running.once(payload=number)), f"{name}-{number}".encode())
        producer.abort_transaction(15) if name == "aborted" else producer.commit_transaction(15)
    committed = {f"committed-{number}".encode() for number in range(20) if number % 3}
    installation.log(running.orders).until(lambda found: committed <= {each.key for each in found})
    assert scheduler.terminate() == 0
    scheduler.start().until_owner()
    for partition in range(installation.layout.partitions):
        check_alive(running, partition)
    keys = [each.key for each in installation.log(running.orders).look() if b"ted-" in (each.key or b"")]
    assert len(keys) == len(set(keys))
    assert set(keys) == committed
    assert not any((each.key or b"").startswith(b"aborted-") for each in installation.log("jobs").look())


def test_a_transaction_that_hangs_holds_up_its_own_partition_only(running: Running) -> None:
    installation, _, _ = running
    layout = installation.layout
    behind = id_in(layout, 0, start="behind")
    with transaction(installation) as producer:
        hung = id_in(layout, 0, start="hung")
        producer.produce(installation.name("requests.hung"), orjson.dumps(running.once()), hung.encode(), partition=0)
        producer.flush()
        installation.request(behind, running.once(), domain="hung")
        installation.request(beside := id_in(layout, 1, start="beside"), running.once(), domain="hung")
        installation.log(running.orders).of_key(beside)
        check_alive(running, 0)
        assert not [
            each for each in installation.log(running.orders).look() if each.key in (hung.encode(), behind.encode())
        ]
        producer.commit_transaction()
    for job_id in (hung, behind):
        installation.log(running.orders).of_key(job_id)


def test_a_domain_speaks_for_its_tenants_only(running: Running) -> None:
    installation, _, _ = running
    installation.request("shop-job", running.once(tenant="shop"), domain="orders")
    installation.log(running.orders).of_key("shop-job")
    installation.request("bank-job", running.once(tenant="bank", payload="secret"))
    installation.log(running.orders).of_key("bank-job")
    places = [
        installation.request("new-job", running.once(tenant="bank"), domain="orders"),
        installation.request("bank-job", running.once(tenant="shop"), domain="orders"),
        installation.request("bank-job", None, domain="orders"),
        installation.request("bank-job", b"{}", kind="trigger", domain="orders"),
    ]
    for rejected in rejections(installation, places, domain="orders"):
        assert "secret" not in str(rejected.document["reason"])
    assert installation.log(running.orders).count("bank-job") == 1
    assert installation.log("jobs").count("bank-job") == 1
