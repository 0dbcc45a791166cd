"""Runs that ended in each minute, by tenant: how many of each kind, how late they began. Rows of the recents' index.

    key = slot (1 byte) | m | minute (u32) | tenant        value = counts (u32 each): ENDS, then lateness by `LATE_MS`

Counted while lines are copied, in the same batch, so that a count and the lines it counts are there together.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from operator import add
from typing import Final

from noontide.core.durations import MINUTE_MS
from noontide.core.spread import MILLISECONDS
from noontide.ports.due_index import DueIndex, IndexBatch
from noontide.ports.record_log import Incoming

ENDS: Final = ("succeeded", "dead", "cancelled", "decided")
"""What is counted; decided: an occurrence that was decided not to run."""
LATE_MS: Final = MILLISECONDS
"""Upper bounds of the counts of lateness; one more count is of those beyond."""
TENANTS_MAX: Final = 200
"""Tenants told apart in a minute of a slot; all others are counted together, which only those see who see all."""
OTHERS: Final = b"\xff"
KIND: Final = b"m"

Counts = tuple[int, ...]
_WIDTH: Final = len(ENDS) + len(LATE_MS) + 1
_ROW = struct.Struct(f">{_WIDTH}I")
_MINUTE = struct.Struct(">I")
_STATE, _TENANT, _LATE = b'"state":"', b'"tenant":"', b'"late_ms":'
_PLACES = {name.encode(): place for place, name in enumerate(ENDS)}
NOTHING: Final[Counts] = (0,) * _WIDTH


class Tallies:
    """The counts of an index that lines are copied into. For the thread that copies."""

    def __init__(self, index: DueIndex) -> None:
        self._index = index
        self._tenants: dict[tuple[int, int], set[bytes]] = {}

    def forget(self) -> None:
        """Other slots, or an index that was emptied: what is remembered may not be so."""
        self._tenants.clear()

    def add_to(self, batch: IndexBatch, records: Iterable[Incoming]) -> None:
        """Count some lines in the batch that writes them."""
        added: dict[bytes, list[int]] = {}
        for (slot, minute, tenant, place, late), count in Counter(map(_seen, records)).items():
            row = added.setdefault(self._key(slot, minute, tenant), [0] * _WIDTH)
            row[place] += count
            if late is not None:
                row[len(ENDS) + late] += count
        keys = list(added)
        for key, known in zip(keys, self._index.get_many(keys), strict=True):
            counts = added[key] if known is None else map(add, added[key], _ROW.unpack(known))
            batch.puts[key] = _ROW.pack(*counts)

    def _key(self, slot: int, minute: int, tenant: bytes) -> bytes:
        head = bytes([slot]) + KIND + _MINUTE.pack(minute)
        known = self._tenants.get((slot, minute))
        if known is None:
            if len(self._tenants) > 2 * 256:
                self._tenants.clear()
            rows = self._index.scan(head, head + b"\xff\xff", TENANTS_MAX + 1)
            known = self._tenants[slot, minute] = {key[len(head) :] for key, _ in rows}
        if tenant not in known and len(known) >= TENANTS_MAX:
            return head + OTHERS
        known.add(tenant)
        return head + tenant


def outdated(slot: int, until_ms: int) -> tuple[bytes, bytes]:
    """The range of keys of minutes before a time."""
    return bytes([slot]) + KIND, bytes([slot]) + KIND + _MINUTE.pack(max(0, until_ms) // MINUTE_MS)


def counts_between(
    index: DueIndex, slot: int, first: int, stop: int, tenants: Collection[str] | None
) -> Iterator[tuple[int, Counts]]:
    """(minute, counts) of some minutes of a slot, a minute once for each tenant. tenants: None = all."""
    head = bytes([slot]) + KIND
    start, end = head + _MINUTE.pack(first), head + _MINUTE.pack(stop)
    wanted = None if tenants is None else {each.encode() for each in tenants}
    while rows := index.scan(start, end, 500):
        for key, value in rows:
            if wanted is None or key[6:] in wanted:
                yield _MINUTE.unpack_from(key, 2)[0], _ROW.unpack(value)
        start = rows[-1][0] + b"\0"


def lateness(counts: Counts, share: float) -> int | None:
    """Milliseconds within which so large a share of the runs began: the bound of the count it falls into."""
    late = counts[len(ENDS) :]
    total = sum(late)
    if not total:
        return None
    needed, so_far = share * total, 0
    for bound, count in zip((*LATE_MS, 2 * LATE_MS[-1]), late, strict=True):
        so_far += count
        if so_far >= needed:
            return bound
    return None


def _seen(record: Incoming) -> tuple[int, int, bytes, int, int | None]:
    """(slot, minute, tenant, which end, count of lateness) of a line; by hand, as waves have 20,000 a second."""
    line = record.value or b""
    place = _PLACES.get(_text(line, _STATE), len(ENDS) - 1)
    late = line.find(_LATE)
    bucket = None
    if late >= 0 and place < len(ENDS) - 1:
        end = line.find(b",", late)
        digits = line[late + len(_LATE) : end if end >= 0 else len(line) - 1]
        bucket = bisect_left(LATE_MS, int(digits)) if digits.lstrip(b"-").isdigit() else None
    return record.partition, record.appended_ms // MINUTE_MS, _text(line, _TENANT), place, bucket


def _text(line: bytes, name: bytes) -> bytes:
    start = line.find(name) + len(name)
    return line[start : line.find(b'"', start)] if start >= len(name) else b""
