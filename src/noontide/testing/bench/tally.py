"""Which runs a topic holds, by the run ids in its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.ports.record_log import Incoming, TopicPartition

RUN_HEADER = "noontide-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """missing: expected runs that are not there; duplicates: copies beyond the first; foreign: runs nobody expected."""

    missing: int
    duplicates: int
    foreign: int

    @property
    def is_clean(self) -> bool:
        """Every expected run exactly once, and nothing else."""
        return not (self.missing or self.duplicates or self.foreign)


def tally(
    connection: KafkaConnection,
    positions: Mapping[TopicPartition, int],
    *,
    expected: int,
    number_of_run: Callable[[str], int | None],
) -> Tally:
    """Count the runs on a topic, from these positions to its end.

    number_of_run: which of the expected ones (0 .. expected - 1) a run id is; None for a foreign one.
    """
    seen = bytearray(expected)  # one byte per run: a million must not cost a gigabyte
    duplicates = foreign = 0
    for run in _runs(connection, positions):
        number = number_of_run(run)
        if number is None:
            foreign += 1
        elif seen[number]:
            duplicates += 1
        else:
            seen[number] = 1
    return Tally(missing=seen.count(0), duplicates=duplicates, foreign=foreign)


def _runs(connection: KafkaConnection, positions: Mapping[TopicPartition, int]) -> Iterator[str]:
    replay = KafkaReplay(connection)
    for chunk in replay.read(positions, replay.stable_offsets(tuple(positions))):
        yield from map(_run_of, chunk)


def _run_of(record: Incoming) -> str:
    return next((value.decode() for name, value in record.headers if name == RUN_HEADER), "")
