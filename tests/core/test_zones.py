"""Zones: exact names, and the offsets `zoneinfo` gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import BytesIO
from pkgutil import get_data
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.core.errors import InvalidDefinition
from noontide.core.zones import NEVER_AFTER_MS, NEVER_BEFORE_MS, load_zone, tzdata_version, zone_names

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def packaged(name: str) -> ZoneInfo:
    data = get_data("tzdata", f"zoneinfo/{name}")
    assert data is not None
    return ZoneInfo.from_file(BytesIO(data), key=name)


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Etc/GMT+5", "EST", "America/Argentina/Buenos_Aires", "Zulu"])
def test_iana_names(name: str) -> None:
    assert load_zone(name, pointer="/timezone").name == name
    assert load_zone(name, pointer="/timezone") is load_zone(name, pointer="/other")


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "CDT", "CST", "GMT+24", "Mars/Phobos", "../../etc/passwd", "/etc/localtime", "Europe", "+01:00"),
        *("Europe/Berlin\0", " Europe/Berlin", "Europe/Berlin/", "europe/berlin", "tzdata.zi", "x" * 10_000),
        *(None, 1, True, b"UTC", ["UTC"]),
    ],
)
def test_anything_else_is_refused(name: object) -> None:
    with pytest.raises(InvalidDefinition) as error:
        load_zone(name, pointer="/timezone")
    assert error.value.problems[0].pointer == "/timezone"
    assert len(error.value.problems[0].message) < 300


def test_another_spelling_is_suggested() -> None:
    with pytest.raises(InvalidDefinition, match="did you mean Europe/Berlin"):
        load_zone("europe/BERLIN", pointer="")


def test_version_is_that_of_the_database() -> None:
    assert tzdata_version()[:2] == "20"
    assert tzdata_version()[4:].isalpha()


@settings(deadline=None)
@given(
    st.sampled_from(sorted(zone_names())),
    st.integers(min_value=-62_000_000_000, max_value=253_000_000_000) | st.integers(0, 4_000_000_000),
)
def test_offsets_are_those_of_zoneinfo(name: str, instant_s: int) -> None:
    asked = (EPOCH + timedelta(seconds=instant_s)).astimezone(packaged(name)).utcoffset()
    assert asked is not None
    segment = load_zone(name, pointer="").segment_at(instant_s * 1000)
    assert segment.offset_ms == asked.total_seconds() * 1000
    assert segment.start_ms <= instant_s * 1000 < segment.end_ms


@pytest.mark.parametrize("name", ["Europe/Berlin", "Africa/Casablanca", "America/Nuuk", "Pacific/Apia", "Asia/Tokyo"])
def test_segments_follow_one_another(name: str) -> None:
    zone = load_zone(name, pointer="")
    segment = zone.segment_at(-(10**14))
    assert segment.start_ms == NEVER_BEFORE_MS
    for _ in range(400):
        if segment.end_ms == NEVER_AFTER_MS:
            break
        later = zone.segment_at(segment.end_ms)
        assert zone.segment_at(segment.end_ms - 1) == segment
        assert (later.start_ms, later.offset_before_ms) == (segment.end_ms, segment.offset_ms)
        assert later.offset_ms == segment.offset_after_ms != segment.offset_ms
        segment = later


def test_no_zone_changes_twice_within_two_days() -> None:
    """The search of schedules skips segments; it relies on them being longer than any overlap."""
    for name in sorted(zone_names()):
        zone = load_zone(name, pointer="")
        segment = zone.segment_at(zone.segment_at(-(10**14)).end_ms)
        while segment.end_ms < 2_000_000_000_000:
            assert segment.end_ms - segment.start_ms > 2 * 86_400_000, name
            segment = zone.segment_at(segment.end_ms)
