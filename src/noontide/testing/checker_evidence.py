"""What the topics say, read_committed: definitions as they were accepted, records at targets, closed runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.foreign_topics import partition_counts
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.ports.record_log import Incoming, TopicPartition
from noontide.records.topics import Layout


class Version(NamedTuple):
    """A definition as it was accepted, or a deletion (document None).

    accepted_ms: append time of its request. incomplete: why what was before it is not known, else None.
    """

    accepted_ms: int
    document: Mapping[str, object] | None
    incomplete: str | None = None


class Delivery(NamedTuple):
    """A record at a target that names its run. appended_ms: its timestamp."""

    topic: str
    job_id: str
    run_id: str
    due_ms: int
    appended_ms: int


class Closing(NamedTuple):
    """A record of `executions`. until_ms: the last due it covers, when it covers a range of `occurrences`.

    target: as the record has it. token: of the last start. begun_ms: when a worker first started it, None = none did.
    """

    job_id: str
    run_id: str
    state: str
    due_ms: int
    start_ms: int
    until_ms: int | None = None
    occurrences: int = 1
    target: str = ""
    token: int = 0
    begun_ms: int | None = None

    @property
    def by_worker(self) -> bool:
        """Whether a worker carried it out with success."""
        return self.state == "succeeded" and bool(self.target) and not self.target.startswith("kafka://")


class LiveRun(NamedTuple):
    """A record of `leases` of a run for workers: not closed yet."""

    job_id: str
    run_id: str
    due_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything the judgement rests on. versions: per job id in the order they were accepted.

    live: what workers still had to do when the rest was read, or a little before.
    """

    versions: Mapping[str, Sequence[Version]] = field(default_factory=dict)
    deliveries: Sequence[Delivery] = ()
    closings: Sequence[Closing] = ()
    live: Sequence[LiveRun] = ()


def gather(connection: KafkaConnection, layout: Layout) -> Evidence:
    """Read all of it. Raises Doubt or Unreachable when the brokers do not answer.

    Targets and `leases` are read before `executions`, so that what is seen there can have its closing.
    """
    reading = _Reading(connection)
    definitions = list(reading.records({layout.name("jobs"): layout.partitions}))
    origins = {origin for record in definitions if (origin := _header(record, "origin"))}
    accepted = reading.accepted(origins, prefix=layout.prefix)
    versions = versions_in(definitions, accepted)
    topics = sorted({topic for history in versions.values() for version in history if (topic := target_of(version))})
    counts = partition_counts(connection, topics)
    return Evidence(
        versions=versions,
        deliveries=deliveries_in(reading.records(counts)),
        live=live_in(reading.records({layout.name("leases"): layout.slots})),
        closings=closings_in(reading.records({layout.name("executions"): layout.topic_partitions("executions")})),
    )


def target_of(version: Version) -> str | None:
    """The topic a definition writes to; None for other targets and deletions."""
    match version.document:
        case {"target": {"topic": {"name": str(name)}}}:
            return name
    return None


def is_for_workers(version: Version) -> bool:
    """Whether workers carry out the runs of a definition: then their proof is on `executions` alone."""
    match version.document:
        case {"target": {"handler": _} | {"http": _}}:
            return True
    return False


class _Reading:
    """Reads whole topics."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._replay = KafkaReplay(connection)

    def records(self, topics: Mapping[str, int]) -> Iterator[Incoming]:
        """All committed records of topics with so many partitions, each partition's in order."""
        partitions = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]
        ends = self._replay.end_offsets(partitions)
        for chunk in self._replay.read(dict.fromkeys(ends, 0), ends):
            yield from chunk

    def accepted(self, origins: set[str], *, prefix: str) -> dict[str, int]:
        """Append times of requests by `topic/partition/offset`, of those that are still there."""
        topics = sorted({prefix + origin.partition("/")[0] for origin in origins})
        found = {}
        for record in self.records(partition_counts(self._connection, topics)):
            origin = f"{record.topic.removeprefix(prefix)}/{record.partition}/{record.offset}"
            if origin in origins:
                found[origin] = record.appended_ms
        return found


def versions_in(records: Sequence[Incoming], accepted: Mapping[str, int]) -> dict[str, list[Version]]:
    """The history of each job in records of `jobs`. accepted: append times of requests by `topic/partition/offset`."""
    versions: dict[str, list[Version]] = defaultdict(list)
    for record in records:
        history = versions[(record.key or b"").decode()]
        updated, created = _header(record, "updated"), _header(record, "created")
        at_ms = accepted.get(_header(record, "origin"))
        if at_ms is None:
            at_ms = _instant_ms(updated) if updated else record.appended_ms
        document = None if record.value is None else orjson.loads(record.value)
        first = not history or history[-1].document is None
        incomplete = "older versions are gone from `jobs`" if first and created != updated else None
        history.append(Version(at_ms, document, incomplete))
    return dict(versions)


def deliveries_in(records: Iterable[Incoming]) -> list[Delivery]:
    """The runs that records of target topics belong to."""
    return [found for record in records if (found := _delivery(record))]


def closings_in(records: Iterable[Incoming]) -> list[Closing]:
    """What records of `executions` say."""
    return [_closing(record) for record in records]


def _delivery(record: Incoming) -> Delivery | None:
    run_id, job_id, due = (_header(record, f"noontide-{name}") for name in ("run", "job", "due"))
    if not run_id or not due:
        return None  # somebody else's record
    return Delivery(record.topic, job_id, run_id, _instant_ms(due), record.appended_ms)


def _closing(record: Incoming) -> Closing:
    fields = orjson.loads(record.value or b"{}")
    due_ms = _instant_ms(fields["due"])
    start, until = fields.get("start_after"), fields.get("until")
    return Closing(
        job_id=fields["job_id"],
        run_id=fields["run_id"],
        state=fields["state"],
        due_ms=due_ms,
        start_ms=due_ms if start is None else _instant_ms(start),
        until_ms=None if until is None else _instant_ms(until),
        occurrences=fields.get("count", 1),
        target=fields.get("target", ""),
        token=fields.get("token", 0),
        begun_ms=_begun_ms(fields),
    )


def _begun_ms(fields: Mapping[str, Any]) -> int | None:
    """The first start that was granted; earlier attempts are a JSON list in a string."""
    granted = [attempt.get("granted") for attempt in orjson.loads(fields.get("attempts") or "[]")]
    last = _instant_ms(fields["started_at"]) if "started_at" in fields else None
    return min((at for at in (*granted, last) if at), default=None)


def live_in(records: Iterable[Incoming]) -> list[LiveRun]:
    """The runs for workers that records of `leases` leave open."""
    found: dict[bytes, bytes | None] = {record.key or b"": record.value for record in records}
    runs = [(key.decode(), orjson.loads(value)) for key, value in found.items() if value is not None]
    return [
        LiveRun(fields["job_id"], run_id, fields["due"])
        for run_id, fields in runs
        if not fields["target"].startswith("kafka://")
    ]


def _header(record: Incoming, name: str) -> str:
    return next((value.decode() for header, value in record.headers if header == name and value), "")


def _instant_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
