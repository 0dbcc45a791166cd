"""What topics say about runs: dead ones that may be redriven, and everything about one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.tail import offsets_since
from noontide.core.ids import OccurrenceRunId, parse_run_id
from noontide.core.run import Run
from noontide.ports.record_log import Incoming, TopicPartition
from noontide.records.moving import history_partitions
from noontide.records.state import DEAD

if TYPE_CHECKING:
    from noontide.apps.cli.reading import Reader

SLACK_MS: Final = 60_000
"""How long before its due time records of a run are looked for: brokers' clocks differ a little."""

Fields = dict[str, object]


class DeadRun(NamedTuple):
    """The latest letter about a run that is dead still. ended_ms: when it was closed."""

    run_id: str
    job_id: str
    tenant: str
    ended_ms: int
    attempt: int
    reason: str
    error: str


class Story(NamedTuple):
    """All there is about a run, each kind in the order it was written."""

    run_id: str
    live: Run | None
    executions: Sequence[Fields]
    results: Sequence[Fields]
    dead_letters: Sequence[Fields]

    def __bool__(self) -> bool:
        return bool(self.live or self.executions or self.results or self.dead_letters)


def dead_runs(reader: Reader, slots: Iterable[int]) -> list[DeadRun]:
    """Runs that are dead and can be redriven, the oldest end first.

    `dead-letters` says what happened; whether that is still so, the owner's list on `state` says: runs that were
    redriven since, and those whose time for that is over, are not on it.
    """
    slots = list(slots)
    layout = reader.layout
    history = {
        each for slot in slots for number in layout.partitions_of(slot) for each in history_partitions(layout, number)
    }
    found_letters = map(_fields, _records(reader, "dead-letters", sorted(history)))
    letters = {str(letter["run_id"]): letter for letter in found_letters}
    if not letters:
        return []
    still: dict[bytes, bool] = {}
    for record in _records(reader, "state", slots):
        if record.key is not None and record.key.startswith(DEAD):
            still[record.key.removeprefix(DEAD)] = record.value is not None
    found = [_dead(letter) for run_id, letter in letters.items() if still.get(run_id.encode())]
    return sorted(found, key=lambda dead: (dead.ended_ms, dead.run_id))


def story_of(reader: Reader, run_id: str) -> Story:
    """Everything about one run; reads the topics of its slot from its due time on. Raises InvalidDefinition."""
    parsed = parse_run_id(run_id, "")
    partition = reader.layout.partition_of(parsed.job_id)
    slot = reader.layout.slot_of(partition)
    since_ms = max(0, parsed.due_ms - SLACK_MS) if isinstance(parsed, OccurrenceRunId) else 0
    found: dict[str, list[Fields]] = {}
    for topic in ("executions", "results", "dead-letters"):
        records = _records(reader, topic, history_partitions(reader.layout, partition), since_ms=since_ms)
        found[topic] = [fields for fields in map(_fields, records) if fields.get("run_id") == run_id]
    live = next((run for run in reader.leases([slot]) if run.run_id == run_id), None)
    return Story(run_id, live, found["executions"], found["results"], found["dead-letters"])


def _records(reader: Reader, topic: str, slots: Iterable[int], *, since_ms: int = 0) -> Iterator[Incoming]:
    """Committed records up to the ends, each partition's in order."""
    name = reader.layout.name(topic)
    partitions = [TopicPartition(name, slot) for slot in slots]
    replay = KafkaReplay(reader.connection)
    ends = replay.end_offsets(partitions)
    starts = offsets_since(reader.connection, partitions, since_ms=since_ms) if since_ms else dict.fromkeys(ends, 0)
    for chunk in replay.read(starts, ends):
        yield from chunk


def _fields(record: Incoming) -> Fields:
    fields: Fields = orjson.loads(record.value or b"{}")
    return fields


def _dead(letter: Fields) -> DeadRun:
    return DeadRun(
        run_id=str(letter["run_id"]),
        job_id=str(letter["job_id"]),
        tenant=str(letter["tenant"]),
        ended_ms=int(str(letter["at"])),
        attempt=int(str(letter["attempt"])),
        reason=str(letter["reason"]),
        error=str(letter.get("error") or ""),
    )
