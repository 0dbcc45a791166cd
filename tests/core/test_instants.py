"""Instants: what is accepted, what is refused and how they are written."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.core.dst import LAST_MS, DstRule
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import FIRST_MS, format_basic, format_instant, parse_instant, parse_optional_instant

INSTANTS = st.integers(min_value=FIRST_MS, max_value=LAST_MS)


def read(text: object, zone: str | None = None, dst: DstRule | None = None) -> str:
    return format_instant(parse_instant(text, zone=zone, pointer="/at", dst=dst or DstRule()))


def refused(text: object) -> str:
    with pytest.raises(InvalidDefinition) as error:
        parse_instant(text, zone=None, pointer="/at")
    assert error.value.problems[0].pointer == "/at"
    return error.value.problems[0].message


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2026-12-24T18:00:00Z", "2026-12-24T18:00:00.000Z"),
        ("2026-12-24t18:00:00z", "2026-12-24T18:00:00.000Z"),
        ("2026-12-24 18:00:00+01:00", "2026-12-24T17:00:00.000Z"),
        ("2026-12-24T18:00:00-00:30", "2026-12-24T18:30:00.000Z"),
        ("2026-12-24T18:00Z", "2026-12-24T18:00:00.000Z"),
        ("2026-12-24T18:00:00.9999Z", "2026-12-24T18:00:00.999Z"),
        ("2026-12-24T18:00:00.5Z", "2026-12-24T18:00:00.500Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("2017-01-01T00:59:60+01:00", "2017-01-01T00:00:00.000Z"),
        ("2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.000Z"),
    ],
)
def test_accepted(text: str, expected: str) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-12-24", "18:00:00", "2026-12-24T18", "2026-12-24T18:00:00+1", "2026-12-24T18:00:00+0100"),
        *("2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "2026-12-24T24:00:00Z"),
        *("2026-12-24T18:60:00Z", "2026-12-24T18:00:61Z", "2026-12-24T18:00:60Z", "2026-12-24T18:00:00+24:00"),
        *("10000-01-01T00:00:00Z", "-2026-12-24T18:00:00Z", "2026-12-24T18:00:00.Z", "2026-12-24T18:00:00Z\n"),
        *("٢٠٢٦-12-24T18:00:00Z", "9999-12-31T23:59:59-00:01", "0001-01-01T00:00:00+00:01", "x" * 10_000, "now"),
        *("9999-12-31T23:59:60Z", None, True, [], {}),
    ],
)
def test_refused(text: object) -> None:
    assert refused(text)


@pytest.mark.parametrize("value", [0, 1698566537, 1698566537.5, -1, 1e30, "1698566537", "-5", "1698566537.25"])
def test_numbers_have_no_unit(value: object) -> None:
    assert "its unit is ambiguous" in refused(value)


def test_a_local_time_in_a_gap_follows_the_rule() -> None:
    text = "2026-03-29T02:30:00"
    assert read("2026-03-29T01:59:59", "Europe/Berlin") == "2026-03-29T00:59:59.000Z"
    assert read(text, "Europe/Berlin") == "2026-03-29T01:00:00.000Z"
    assert read(text, "Europe/Berlin", DstRule(gap="shift")) == "2026-03-29T01:30:00.000Z"
    assert read("2026-03-29T03:00:00", "Europe/Berlin") == "2026-03-29T01:00:00.000Z"
    skip = DstRule(gap="skip")
    assert parse_optional_instant(text, zone="Europe/Berlin", pointer="", dst=skip) is None
    with pytest.raises(InvalidDefinition, match="does not exist in Europe/Berlin"):
        read(text, "Europe/Berlin", skip)


def test_a_repeated_local_time_follows_the_rule() -> None:
    text = "2026-10-25T02:30:00"
    assert read("2026-10-25T01:59:59", "Europe/Berlin") == "2026-10-24T23:59:59.000Z"
    assert read(text, "Europe/Berlin") == "2026-10-25T00:30:00.000Z"
    assert read(text, "Europe/Berlin", DstRule(repeat="second")) == "2026-10-25T01:30:00.000Z"
    assert read(text, "Europe/Berlin", DstRule(repeat="both")) == "2026-10-25T00:30:00.000Z"
    assert read("2026-10-25T03:00:00", "Europe/Berlin") == "2026-10-25T02:00:00.000Z"


def test_an_offset_wins_over_the_zone() -> None:
    assert read("2026-07-01T12:00:00+05:45", "America/New_York") == "2026-07-01T06:15:00.000Z"


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(InvalidDefinition, match="/timezone"):
        read("2026-07-01T12:00:00", "Mars/Phobos")


@settings(deadline=None)
@given(INSTANTS)
def test_text_and_instant_are_the_same(instant_ms: int) -> None:
    text = format_instant(instant_ms)
    expected = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant_ms)
    assert text == expected.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert parse_instant(text, zone=None, pointer="") == instant_ms


@settings(deadline=None)
@given(INSTANTS)
def test_basic_form_is_the_same_without_punctuation(instant_ms: int) -> None:
    extended = format_instant(instant_ms).replace("-", "").replace(":", "")
    assert format_basic(instant_ms) == extended.replace(".000Z", "Z")


def test_basic_form() -> None:
    assert format_basic(1_798_135_200_000) == "20261224T180000Z"
    assert format_basic(1_798_135_200_123) == "20261224T180000.123Z"


@settings(deadline=None)
@given(st.text(max_size=40) | st.integers() | st.floats() | st.none() | st.booleans())
def test_anything_else_is_a_clear_refusal(value: object) -> None:
    """Never another exception than the refusal, whatever comes in."""
    with suppress(InvalidDefinition):
        assert FIRST_MS <= parse_instant(value, zone="Europe/Berlin", pointer="/at") <= LAST_MS
