"""Time zones: the offset of a zone at every instant, from the `tzdata` package alone.

The zone files come from the package, never from the machine, so the process's TZ, PYTHONTZPATH and
/usr/share/zoneinfo change nothing. Transitions written in a zone's file are read from it (RFC 8536);
those of the yearly rule in its footer are found by asking `zoneinfo`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import import_module
from io import BytesIO
from pkgutil import get_data
from typing import NamedTuple
from zoneinfo import ZoneInfo

from noontide.core.errors import InvalidDefinition

NEVER_BEFORE_MS = -(10**15)
"""An instant before the first one a calendar can name (start of a zone's first segment)."""
NEVER_AFTER_MS = 10**15
"""An instant after the last one a calendar can name (end of a zone's last segment)."""

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX_DAY = 719_163  # proleptic ordinal of 1970-01-01
_RULE_SAMPLE_DAYS = 14  # no yearly rule has two transitions closer than this
_YEARS_KEPT = 64  # merged transition lists kept per zone


class Segment(NamedTuple):
    """A stretch [start_ms, end_ms) during which a zone keeps one offset, and the offsets beside it."""

    start_ms: int
    end_ms: int
    offset_ms: int
    offset_before_ms: int
    offset_after_ms: int


class Zone:
    """One IANA zone: offsets by instant. Immutable to its users; keeps small caches."""

    __slots__ = ("_first_ms", "_has_rule", "_info", "_merged", "_offsets_ms", "_ruled", "_times_ms", "name")

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self._info = ZoneInfo.from_file(BytesIO(data), key=name)
        self._first_ms, self._times_ms, self._offsets_ms, self._has_rule = _read_tzif(data)
        self._merged: dict[int, tuple[list[int], list[int]]] = {}
        self._ruled: dict[int, list[tuple[int, int]]] = {}

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    def segment_at(self, instant_ms: int) -> Segment:
        """The stretch of constant offset that contains the instant."""
        times, offsets = self._transitions_near(instant_ms)
        at = bisect_right(times, instant_ms)
        offset_ms = offsets[at - 1] if at else self._first_ms
        return Segment(
            start_ms=times[at - 1] if at else NEVER_BEFORE_MS,
            end_ms=times[at] if at < len(times) else NEVER_AFTER_MS,
            offset_ms=offset_ms,
            offset_before_ms=(offsets[at - 2] if at > 1 else self._first_ms) if at else offset_ms,
            offset_after_ms=offsets[at] if at < len(times) else offset_ms,
        )

    def offset_ms_at(self, instant_ms: int) -> int:
        """Local time minus UTC at the instant, in milliseconds."""
        return self.segment_at(instant_ms).offset_ms

    def local_ms(self, instant_ms: int) -> int:
        """The wall clock at the instant, as milliseconds since 1970-01-01T00:00:00 local time."""
        return instant_ms + self.offset_ms_at(instant_ms)

    def _transitions_near(self, instant_ms: int) -> tuple[list[int], list[int]]:
        """Times and offsets that hold at least the transitions on both sides of the instant."""
        if not self._has_rule:
            return self._times_ms, self._offsets_ms
        year = _year_of(instant_ms)
        if self._times_ms:
            year = max(year, _year_of(self._times_ms[-1]))
        found = self._merged.get(year)
        if found is None:
            if len(self._merged) >= _YEARS_KEPT:
                self._merged = {}
            found = self._merged[year] = self._merge(year)
        return found

    def _merge(self, year: int) -> tuple[list[int], list[int]]:
        """The file's transitions and those of the rule in the years around `year`."""
        last_ms = self._times_ms[-1] if self._times_ms else NEVER_BEFORE_MS
        first_year = max(year - 1, _year_of(last_ms))
        ruled = [
            found
            for each in range(first_year, min(year + 1, 9998) + 1)
            for found in self._rule_transitions(each)
            if found[0] > last_ms
        ]
        return self._times_ms + [time for time, _ in ruled], self._offsets_ms + [offset for _, offset in ruled]

    def _rule_transitions(self, year: int) -> list[tuple[int, int]]:
        """(instant, offset from then on) of each change in a year."""
        found = self._ruled.get(year)
        if found is None:
            found = self._ruled[year] = self._searched_transitions(year)
        return found

    def _searched_transitions(self, year: int) -> list[tuple[int, int]]:
        start_s = int((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
        end_s = int((datetime(year + 1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
        found: list[tuple[int, int]] = []
        before_s = self._asked_offset_s(start_s)
        while start_s < end_s:
            next_s = min(start_s + _RULE_SAMPLE_DAYS * 86_400, end_s)
            after_s = self._asked_offset_s(next_s)
            if after_s != before_s:
                found.append((self._change_between(start_s, next_s) * 1000, after_s * 1000))
            start_s, before_s = next_s, after_s
        return found

    def _change_between(self, low_s: int, high_s: int) -> int:
        """The first second in (low_s, high_s] whose offset differs from that at low_s."""
        offset_s = self._asked_offset_s(low_s)
        while high_s - low_s > 1:
            middle_s = (low_s + high_s) // 2
            if self._asked_offset_s(middle_s) == offset_s:
                low_s = middle_s
            else:
                high_s = middle_s
        return high_s

    def _asked_offset_s(self, instant_s: int) -> int:
        offset = (_EPOCH + timedelta(seconds=instant_s)).astimezone(self._info).utcoffset()
        assert offset is not None
        return offset // timedelta(seconds=1)


def load_zone(name: object, *, pointer: str) -> Zone:
    """The zone of an exact IANA name (`Europe/Berlin`, `UTC`, `Etc/GMT+5`, `EST`).

    Raises InvalidDefinition for anything else: abbreviations, offsets, paths, other spellings.
    """
    if not isinstance(name, str):
        raise InvalidDefinition.of(pointer, "a time zone is an IANA name such as Europe/Berlin, given as a string")
    if name not in zone_names():
        raise InvalidDefinition.of(pointer, _refusal(name))
    return _load(name)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every name `load_zone` accepts: the list the tzdata package carries."""
    return frozenset(_package_file("zones").decode("ascii").split())


@cache
def tzdata_version() -> str:
    """Release of the IANA database in use, such as `2026a`."""
    return str(import_module("tzdata").IANA_VERSION)


def _refusal(name: str) -> str:
    if not name:
        return "a time zone cannot be empty; leave it out for UTC"
    spelled = {known.lower(): known for known in zone_names()}.get(name.strip().lower())
    hint = f"did you mean {spelled}?" if spelled else "use an IANA name such as Europe/Berlin or UTC"
    return f"{name[:64]!r} is not a known time zone; {hint}"


@lru_cache(maxsize=1024)
def _load(name: str) -> Zone:
    return Zone(name, _package_file(f"zoneinfo/{name}"))


def _package_file(path: str) -> bytes:
    data = get_data("tzdata", path)
    assert data is not None
    return data


def _year_of(instant_ms: int) -> int:
    """Calendar year in UTC, kept between 1 and 9998 so that its neighbours exist too."""
    day = min(max(instant_ms // DAY_MS + _UNIX_DAY, 1), 3_651_000)
    return datetime.fromordinal(day).year


def _read_tzif(data: bytes) -> tuple[int, list[int], list[int], bool]:
    """First offset, transition times, offsets from then on (ms), and whether the footer has a yearly rule.

    Source: RFC 8536, the 64-bit block. Transitions that change the name alone are left out.
    """
    counts = struct.unpack_from(">6l", data, 20)
    second = 44 + _block_bytes(counts, time_bytes=4)
    counts = struct.unpack_from(">6l", data, second + 20)
    _, _, _, time_count, type_count, _ = counts
    at = second + 44
    times = struct.unpack_from(f">{time_count}q", data, at)
    kinds = data[at + 8 * time_count : at + 9 * time_count]
    types = [struct.unpack_from(">lBB", data, at + 9 * time_count + 6 * index) for index in range(type_count)]
    first = next((offset for offset, is_dst, _ in types if not is_dst), types[0][0])
    footer = data[at + _block_bytes(counts, time_bytes=8) :]
    changes: list[tuple[int, int]] = []
    for time, kind in zip(times, kinds, strict=True):
        if types[kind][0] != (changes[-1][1] if changes else first):
            changes.append((time, types[kind][0]))
    return first * 1000, [time * 1000 for time, _ in changes], [each * 1000 for _, each in changes], b"," in footer


def _block_bytes(counts: tuple[int, ...], *, time_bytes: int) -> int:
    ut_count, std_count, leap_count, time_count, type_count, char_count = counts
    return (
        time_count * (time_bytes + 1)
        + type_count * 6
        + char_count
        + leap_count * (time_bytes + 4)
        + std_count
        + ut_count
    )
