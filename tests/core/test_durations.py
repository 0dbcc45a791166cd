"""Durations: text and seconds in, milliseconds out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.core.durations import LONGEST_MS, format_duration, parse_duration, parse_seconds
from noontide.core.errors import InvalidDefinition


@pytest.mark.parametrize(
    "text, expected_ms",
    [
        ("PT1S", 1_000),
        ("PT0.5S", 500),
        ("PT0.001S", 1),
        ("PT1.2345S", 1_234),
        ("PT15M", 900_000),
        ("PT90M", 5_400_000),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("P2W", 1_209_600_000),
        ("P1W1D", 691_200_000),
        ("P36525D", LONGEST_MS),
    ],
)
def test_accepted(text: str, expected_ms: int) -> None:
    assert parse_duration(text, pointer="/every") == expected_ms


@pytest.mark.parametrize(
    "value, why",
    [
        ("P1M", "no fixed length"),
        ("P1Y", "no fixed length"),
        ("P1Y2M3DT4H", "no fixed length"),
        ("PT0S", "at least a millisecond"),
        ("P0D", "at least a millisecond"),
        ("PT0.0009S", "at least a millisecond"),
        ("-PT5M", "no sign"),
        ("PT-5M", "no sign"),
        ("+PT5M", "no sign"),
        ("pt5m", "capital"),
        ("P36526D", "100 years"),
        ("PT" + "9" * 50 + "S", "100 years"),
        ("PT" + "9" * 500 + "S", "ISO 8601"),
        ("P", "ISO 8601"),
        ("PT", "ISO 8601"),
        ("P1DT", "ISO 8601"),
        ("PT1.5M", "ISO 8601"),
        ("PT.5S", "ISO 8601"),
        ("PT5", "ISO 8601"),
        ("5m", "ISO 8601"),
        ("PT٥M", "ISO 8601"),
        ("PT5M\n", "ISO 8601"),
        ("", "ISO 8601"),
        (300, "not a number"),
        (0.5, "not a number"),
        (True, "not a boolean"),
        (None, "not null"),
        ([], "not a list"),
        ({}, "not an object"),
    ],
)
def test_refused(value: object, why: str) -> None:
    with pytest.raises(InvalidDefinition) as error:
        parse_duration(value, pointer="/every")
    assert error.value.problems[0].pointer == "/every"
    assert why in error.value.problems[0].message


@pytest.mark.parametrize("value, expected_ms", [(1, 1_000), (0.001, 1), (1.5, 1_500), (86_400, 86_400_000)])
def test_seconds(value: object, expected_ms: int) -> None:
    assert parse_seconds(value, pointer="/timeout_sec") == expected_ms


@pytest.mark.parametrize(
    "value", [0, -1, 0.0001, math.nan, math.inf, -math.inf, 1e300, 10**400, True, False, "300", None, [], {}]
)
def test_seconds_refused(value: object) -> None:
    with pytest.raises(InvalidDefinition, match="/timeout_sec: "):
        parse_seconds(value, pointer="/timeout_sec")


@settings(deadline=None)
@given(st.integers(min_value=1, max_value=LONGEST_MS))
def test_text_and_duration_are_the_same(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms), pointer="") == duration_ms


def test_text() -> None:
    assert format_duration(0) == "PT0S"
    assert format_duration(90_061_500) == "P1DT1H1M1.5S"
    assert format_duration(-60_000) == "-PT1M"
