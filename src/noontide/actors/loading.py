"""Fill a slot's memory from its restored index: positions, live runs, and what has to be sent again."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, MutableMapping

from noontide.actors.closing import Delivered
from noontide.actors.effects import Hold, Send
from noontide.actors.exchange import Exchange
from noontide.actors.hand_out import hold_of, send_of
from noontide.actors.lease_keeper import LeaseKeeper
from noontide.actors.partition import Partition
from noontide.core.run import HANDED_OUT, Run
from noontide.ports.due_index import DueIndex
from noontide.records import rows
from noontide.records.job_row import JobRow, decode_job_row
from noontide.records.leases import decode_lease
from noontide.records.state import decode_position, position_record_key

PAGE = 1_000
"""Rows read at once."""


def load_positions(
    index: DueIndex,
    partitions: Mapping[int, Partition],
    mailbox: str,
    positions: MutableMapping[int | str, dict[str, int]],
) -> int:
    """Read what was consumed, by partition and for the slot's mailbox; returns the number of the latest cycle."""
    first, latest = next(iter(partitions)), 0
    names: list[tuple[int, int | str]] = [(number, number) for number in partitions]
    for owner, name in [*names, (first, mailbox)]:
        value = index.get_many([rows.meta_key(owner, position_record_key(name))])[0]
        if value is not None:
            position = decode_position(value)
            positions[name] = position.inputs
            latest = max(latest, position.cycle)
    return latest


def load_runs(
    index: DueIndex, partitions: Mapping[int, Partition], keeper: LeaseKeeper, exchange: Exchange
) -> list[Send]:
    """Read the live runs; returns the records that may not have been sent."""
    sends: list[Send] = []
    for number, partition in partitions.items():
        for key, value in _all_rows(index, *rows.kind_range(number, b"l")):
            run = decode_lease(key[2:], value)
            partition.live.put(run)
            exchange.load_run(number, run)
            if run.state in HANDED_OUT:
                sends += _resumed(index, partition, run, keeper)
    return sends


def _resumed(index: DueIndex, partition: Partition, run: Run, keeper: LeaseKeeper) -> list[Send]:
    """A run that was handed out by the owner before.

    One for a topic is sent again, unless it must not happen twice; one that workers take is waited for. Without a
    definition neither is possible: its turn comes at once, and then it is set aside.
    """
    number, run_id = partition.number, run.run_id.encode()
    key = rows.claimed_key(number, run_id) if run.kept else rows.job_key(number, run.job_id.encode())
    row = _readable(index.get_many([key])[0])
    if row is None and run.lane:
        keeper.load(run, Hold(number, queue_ms=0, lease_ms=0, timeout_ms=0, once=1, follows=True))
    elif row is None:
        partition.deliveries.append(Delivered(run.run_id, "its definition is lost", retriable=False))
    elif run.lane:
        keeper.load(run, hold_of(number, row))
    elif row.once:
        unknown = Delivered(run.run_id, "the owner changed before the delivery was confirmed", retriable=False)
        partition.deliveries.append(unknown)
    else:
        return [send_of(number, run, row)]
    return []


def _readable(row: bytes | None) -> JobRow | None:
    try:
        return None if row is None else decode_job_row(row)
    except (ValueError, struct.error):
        return None


def _all_rows(index: DueIndex, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
    while found := index.scan(start, stop, PAGE):
        yield from found
        start = found[-1][0] + b"\0"
