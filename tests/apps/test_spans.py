"""Durations as people type and read them."""

from __future__ import annotations

import pytest

from noontide.apps.cli.spans import iso_span, parse_since_ms, parse_span_ms, words
from noontide.core.errors import InvalidDefinition


@pytest.mark.parametrize(
    "text, span_ms",
    [("5s", 5_000), ("2m", 120_000), ("1h30m", 5_400_000), ("1d", 86_400_000), ("250ms", 250), ("PT15M", 900_000)],
)
def test_spans(text: str, span_ms: int) -> None:
    assert parse_span_ms(text, pointer="--every") == span_ms


@pytest.mark.parametrize("text", ["", "5", "5 s", "s", "-5s", "0s", "1y", "5s!", "PT", "٥s"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(InvalidDefinition):
        parse_span_ms(text, pointer="--every")


def test_iso() -> None:
    assert iso_span("1h30m", pointer="--every") == "PT1H30M"


def test_since_is_an_instant_or_a_distance() -> None:
    assert parse_since_ms("10s", now_ms=60_000, pointer="--since") == 50_000
    assert parse_since_ms("1970-01-01T00:00:01Z", now_ms=0, pointer="--since") == 1_000


@pytest.mark.parametrize(
    "span_ms, text",
    [
        (0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (1_250, "1.2 s"), (59_900, "59.9 s"), (60_000, "1 min"),
        (125_000, "2 min 5 s"), (3_600_000, "1 h"), (12_000_000, "3 h 20 min"), (100_800_000, "1 d 4 h"),
        (-5, "-5 ms"), (-90_000, "-1 min 30 s"),
    ],
)  # fmt: skip
def test_words(span_ms: int, text: str) -> None:
    assert words(span_ms) == text
