"""Tables read from compacted topics to their ends, read_committed: jobs with their cursors, leases, config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.core.cursor import Cursor
from noontide.core.definition import load_definition
from noontide.core.errors import InvalidDefinition
from noontide.core.job import Job
from noontide.core.occurrence import spread_offset
from noontide.core.run import Run
from noontide.ports.record_log import Incoming, TopicPartition
from noontide.records.config import ConfigView, check_config, updated_view
from noontide.records.leases import decode_lease
from noontide.records.owners import Said, decode_owner
from noontide.records.state import CURSOR, cursor_record_key, decode_cursor
from noontide.records.topics import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """An accepted job and where it stands. document: normalised JSON; cursor: None when it is not there (yet)."""

    job_id: str
    etag: str
    document: bytes
    headers: dict[str, str]
    cursor: Cursor | None

    def fields(self) -> dict[str, object]:
        """The document, decoded."""
        fields: dict[str, object] = orjson.loads(self.document)
        return fields

    def job(self) -> Job | None:
        """The typed job; None when it names what no longer exists."""
        try:
            return load_definition(self.document)
        except InvalidDefinition:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads tables of one installation. Raises Doubt when the brokers do not answer."""

    connection: KafkaConnection
    layout: Layout

    def jobs(self) -> list[StoredJob]:
        """All jobs, by id."""
        return self._jobs(range(self.layout.partitions), range(self.layout.slots), wanted=None)

    def job(self, job_id: str) -> StoredJob | None:
        """One job; reads the partition it is in."""
        partition = self.layout.partition_of(job_id)
        found = self._jobs([partition], [self.layout.slot_of(partition)], wanted=job_id.encode())
        return found[0] if found else None

    def config(self) -> dict[str, bytes]:
        """Configuration by key, as JSON text, in order of the keys."""
        records = self._latest(self._partitions("config", [0]))
        return {key.decode(): record.value or b"" for key, record in sorted(records.items())}

    def leases(self, slots: Iterable[int]) -> list[Run]:
        """Live runs by due time."""
        records = self._latest(self._partitions("leases", slots))
        runs = [decode_lease(key, record.value or b"") for key, record in records.items()]
        return sorted(runs, key=lambda run: (run.start_ms, run.run_id))

    def facts(self, slots: Iterable[int], prefix: bytes) -> dict[bytes, bytes]:
        """Records of `state` whose keys begin so, by key."""
        records = self._latest(self._partitions("state", slots), prefix=prefix)
        return {key: record.value or b"" for key, record in records.items()}

    def owners(self) -> list[Said]:
        """What owners and standbys said last of their slots; a record that cannot be read is passed over."""
        records = self._latest(self._partitions("owners", [0]))
        found = []
        for record in records.values():
            with suppress(ValueError, KeyError, TypeError):
                found.append(decode_owner(record.value or b"", record.appended_ms))
        return sorted(found, key=lambda each: (each.slot, each.role, each.process))

    def last_executions(self, slots: Sequence[int], *, limit: int, job_id: str | None) -> list[dict[str, object]]:
        """The last `limit` executions by append time, the oldest first; of one job if given."""
        partitions = self._partitions("executions", slots)
        replay = KafkaReplay(self.connection)
        ends = replay.end_offsets(partitions)
        back = 4 * limit + 100
        while True:
            starts = {partition: max(0, end - back) for partition, end in ends.items()}
            records = [record for chunk in replay.read(starts, ends) for record in chunk]
            found = [execution for execution in map(_execution, _by_time(records)) if _is_of(execution, job_id)]
            if len(found) >= limit or not any(starts.values()):
                return found[-limit:]
            back *= 8

    def _jobs(self, partitions: Iterable[int], slots: Iterable[int], *, wanted: bytes | None) -> list[StoredJob]:
        jobs = self._latest(self._partitions("jobs", partitions))
        states = self._latest(self._partitions("state", slots), prefix=CURSOR)
        keys = sorted(jobs) if wanted is None else [wanted] if wanted in jobs else []
        return [_stored(key, jobs[key], states.get(cursor_record_key(key))) for key in keys]

    def _latest(self, partitions: Sequence[TopicPartition], *, prefix: bytes = b"") -> dict[bytes, Incoming]:
        """The newest record of each key that is not deleted."""
        replay = KafkaReplay(self.connection)
        ends = replay.end_offsets(partitions)
        latest: dict[bytes, Incoming] = {}
        for chunk in replay.read(dict.fromkeys(ends, 0), ends):
            for record in chunk:
                if record.key is None or not record.key.startswith(prefix):
                    continue
                if record.value is None:
                    latest.pop(record.key, None)
                else:
                    latest[record.key] = record
        return latest

    def _partitions(self, topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
        name = self.layout.name(topic)
        return [TopicPartition(name, number) for number in numbers]


def config_view(reader: Reader) -> ConfigView:
    """The configuration as a scheduler would see it now."""
    return updated_view(ConfigView(), list(reader.config().items()), offset=0)


def why_later(stored: StoredJob) -> str | None:
    """Why the next start differs from the next due time; None when it does not."""
    cursor = stored.cursor
    if cursor is None or cursor.due_ms is None or cursor.start_ms is None or cursor.start_ms == cursor.due_ms:
        return None
    job = stored.job()
    if job is None:
        return None
    period_ms = None if job.schedule is None else job.schedule.period_ms()
    if cursor.start_ms - cursor.due_ms != spread_offset(job.id, timing=job.timing, period_ms=period_ms):
        return "catching up: an earlier run is not closed"
    return f"{job.timing.mode} timing: spread by its id"


def _stored(key: bytes, record: Incoming, state: Incoming | None) -> StoredJob:
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
    return StoredJob(
        job_id=key.decode(),
        etag=headers.get("etag", ""),
        document=record.value or b"{}",
        headers=headers,
        cursor=None if state is None or state.value is None else decode_cursor(state.value),
    )


def _by_time(records: list[Incoming]) -> Iterator[Incoming]:
    return iter(sorted(records, key=lambda record: (record.appended_ms, record.partition, record.offset)))


def _execution(record: Incoming) -> dict[str, object]:
    execution: dict[str, object] = orjson.loads(record.value or b"{}")
    return execution


def _is_of(execution: dict[str, object], job_id: str | None) -> bool:
    return job_id is None or execution.get("job_id") == job_id


def readable_config(key: str, value: bytes) -> dict[str, object]:
    """A configuration as it is, checked or not: what operators wrote long ago must be shown too. Hashes are not."""
    try:
        shown = dict(check_config(key, value))
        if key.startswith("token/"):
            shown.pop("secrets", None)
        return shown
    except InvalidDefinition:
        return {"unreadable": value.decode("utf-8", "replace")}
