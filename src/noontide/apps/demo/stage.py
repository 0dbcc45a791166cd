"""What the demo needs: a broker, topics, registered targets, and jobs. All of it ends with the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import orjson

from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.foreign_topics import check_reachable, create_topics
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.topics import ensure_topics
from noontide.adapters.system_clock import new_id, wall_now_ms
from noontide.apps.cli.asking import Asker, Request, sentence
from noontide.apps.cli.common import Cluster, Fault
from noontide.apps.cli.definitions import split
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.core.instants import format_instant
from noontide.ports.record_log import Record, TopicPartition
from noontide.records.topics import Layout

SLOTS: Final = 4
PREFIX_ELSEWHERE: Final = "noontide-demo."
"""On a cluster that is not ours the demo keeps apart from an installation that may be there."""
REGISTERED: Final = ("demo.pulse", "demo.orders", "demo.reports")
TOPICS: Final = {**dict.fromkeys(REGISTERED, 4), "demo.audit": 4}
HOLIDAYS: Final = {"dates": ["2026-10-03", {"from": "2026-12-25", "to": "2026-12-26"}, "2027-01-01"]}
REMINDER_DELAY_MS: Final = 6_000
ACCEPT_TIMEOUT_S: Final = 30.0
_EXAMPLE_ADDRESS: Final = b"127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where the demo plays."""

    cluster: Cluster
    layout: Layout
    data: Path


@contextmanager
def set_up(bootstrap: str | None, data: Path, say: Callable[[str], None]) -> Iterator[Stage]:
    """A broker with all topics and the configuration; an embedded broker unless `bootstrap` names one."""
    if bootstrap is not None:
        cluster = Cluster(bootstrap=bootstrap, prefix=PREFIX_ELSEWHERE)
        check_reachable(cluster.connection())
        yield _furnished(cluster, data, say)
        return
    say("Starting Kafka on this machine ...")
    with EmbeddedKafka(data / "kafka", fast_start=True) as kafka:
        yield _furnished(Cluster(bootstrap=kafka.bootstrap), data, say)


def put_jobs(stage: Stage, *, http_address: str) -> int:
    """Put the examples and one reminder for in a moment; returns how many. Raises Fault when one is not accepted.

    http_address: host and port of the HTTP target.
    """
    requests = [_request(text, stage.layout.prefix) for text in (*_examples(http_address), _reminder())]
    follow = ("jobs", "rejected")
    with Asker(stage.cluster.connection(), stage.layout, follow=follow) as asker:
        asker.send(requests, on_sent=lambda _count: None)
        asker.await_answers(timeout_s=ACCEPT_TIMEOUT_S, on_answered=lambda _count: None)
        for refused in asker.answers.refused:
            raise Fault(f"{refused.request.job_id}: {sentence(refused.problems)}")
    return len(requests)


def _furnished(cluster: Cluster, data: Path, say: Callable[[str], None]) -> Stage:
    layout = Layout(prefix=cluster.prefix, slots=SLOTS)
    created = ensure_topics(cluster.connection(), layout)
    create_topics(cluster.connection(), TOPICS, config={"message.timestamp.type": "LogAppendTime"})
    say(f"Kafka is at {cluster.bootstrap}, with {len(created)} new topics of Noontide in {SLOTS} slots.")
    _configure(cluster, layout)
    return Stage(cluster=cluster, layout=layout, data=data)


def _configure(cluster: Cluster, layout: Layout) -> None:
    """Register the targets, and the calendar that an example names."""
    documents: dict[str, object] = {"calendar/de-holidays": HOLIDAYS}
    documents |= {f"target/{name}": {"topic": name, "tenants": "*"} for name in REGISTERED}
    producer = RequestProducer(cluster.connection())
    at = TopicPartition(layout.name("config"), 0)
    for key, document in documents.items():
        producer.send(at, Record(key.encode(), orjson.dumps(document)), lambda _at, _offset: None)
    producer.flush()


def _examples(http_address: str) -> Iterator[bytes]:
    for name in ("lively.yaml", "workers.yaml", "everyday.yaml"):
        data = resources.files("noontide.examples").joinpath(name).read_bytes()
        data = data.replace(_EXAMPLE_ADDRESS, http_address.encode())
        yield from (source.text for source in split(data, name=name))


def _reminder() -> bytes:
    at_ms = wall_now_ms() + REMINDER_DELAY_MS
    return orjson.dumps(
        {
            "id": f"reminder-{at_ms // 1000 % 1_000_000}",
            "run_at": format_instant(at_ms),
            "target": {"topic": {"name": "demo.orders", "key": "reminders"}},
            "payload": {"remind": "you asked for this a moment ago"},
        }
    )


def _request(text: bytes, prefix: str) -> Request:
    context = DefinitionContext(key=None, tenant=None, created_ms=0, new_id=new_id(), topic_prefix=prefix)
    return Request(parse_definition(text, context=context).job.id, text)
