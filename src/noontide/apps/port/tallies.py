"""Runs that ended in each minute, by tenant: how many of each kind, how late they began. Rows of the recents' index.

    key = slot (1 byte) | m | minute (u32)               value = counts (u32 each): ENDS, then lateness by `LATE_MS`
    key = slot (1 byte) | t | minute (u32) | tenant      the same of one tenant

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
"""Tenants told apart in a minute of a slot; the others are counted among all, and nowhere else."""
ALL: Final = b"m"
TENANT: Final = b"t"
CHUNK: Final = 500
"""Rows read at once."""
MINUTES_REMEMBERED: Final = 512

Counts = tuple[int, ...]
_End = tuple[bytes, int, int | None]
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
        for (slot, minute, (tenant, place, late)), count in _counted(records).items():
            for key in self._keys(slot, minute, tenant):
                row = added.setdefault(key, [0] * _WIDTH)
                row[place] += count
                if late is not None:
                    row[len(ENDS) + late] += count
        keys = list(added)
        for key, known in zip(keys, self._index.get_many(keys), strict=True):
            counts = added[key] if known is None else map(add, added[key], _ROW.unpack(known))
            batch.puts[key] = _ROW.pack(*counts)

    def _keys(self, slot: int, minute: int, tenant: bytes) -> Iterator[bytes]:
        yield _key(slot, ALL, minute)
        head = _key(slot, TENANT, minute)
        known = self._tenants.get((slot, minute))
        if known is None:
            if len(self._tenants) > MINUTES_REMEMBERED:
                self._tenants.clear()
            rows = self._index.scan(head, head + b"\xff", TENANTS_MAX)
            known = self._tenants[slot, minute] = {key[len(head) :] for key, _ in rows}
        if tenant in known or len(known) < TENANTS_MAX:
            known.add(tenant)
            yield head + tenant


def outdated(slot: int, until_ms: int) -> list[tuple[bytes, bytes]]:
    """The ranges of keys of minutes before a time."""
    until = max(0, until_ms) // MINUTE_MS
    return [(_key(slot, kind, 0), _key(slot, kind, until)) for kind in (ALL, TENANT)]


def counts_between(
    index: DueIndex, slot: int, first: int, stop: int, tenants: Collection[str] | None
) -> Iterator[list[tuple[int, Counts]]]:
    """(minute, counts) of the minutes from `first` to before `stop`, a few at a time. tenants: whose, None = of all."""
    kind = ALL if tenants is None else TENANT
    names = [b""] if tenants is None else [each.encode() for each in tenants]
    step = max(1, CHUNK // max(1, len(names)))
    for begin in range(first, stop, step):
        minutes = range(begin, min(stop, begin + step))
        keys = [_key(slot, kind, minute) + name for minute in minutes for name in names]
        found = zip(keys, index.get_many(keys), strict=True)
        yield [(_MINUTE.unpack_from(key, 2)[0], _ROW.unpack(value)) for key, value in found if value is not None]


def _key(slot: int, kind: bytes, minute: int) -> bytes:
    return bytes([slot]) + kind + _MINUTE.pack(minute)


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


def _counted(records: Iterable[Incoming]) -> Counter[tuple[int, int, _End]]:
    """(slot, minute, end) of lines. Those of runs that ended alike differ in their ids only, and are read once."""
    known: dict[bytes, _End] = {}
    found: Counter[tuple[int, int, _End]] = Counter()
    for record in records:
        line = record.value or b""
        rest = line[line.find(_TENANT) :]
        end = known.get(rest)
        if end is None:
            end = known[rest] = _end_of(rest)
        found[record.partition, record.appended_ms // MINUTE_MS, end] += 1
    return found


def _end_of(line: bytes) -> _End:
    """(tenant, which end, count of lateness); by hand, as waves have 20,000 lines a second."""
    place = _PLACES.get(_text(line, _STATE), len(ENDS) - 1)
    late = line.find(_LATE)
    bucket = None
    if late >= 0 and place < len(ENDS) - 1:
        end = line.find(b",", late)
        digits = line[late + len(_LATE) : end if end >= 0 else len(line) - 1]
        bucket = bisect_left(LATE_MS, int(digits)) if digits.lstrip(b"-").isdigit() else None
    return _text(line, _TENANT), place, bucket


def _text(line: bytes, name: bytes) -> bytes:
    start = line.find(name) + len(name)
    return line[start : line.find(b'"', start)] if start >= len(name) else b""
