"""Workers needed: the formula, at its edges."""

from __future__ import annotations

from noontide.core.demand import Load, Terms, places_needed, workers_needed

TERMS = Terms(10, 0.8)


def load(**changed: object) -> Load:
    return Load(ready=0, queued=0, running=0, mean_ms=1_000.0, coming=[0] * 5)._replace(**changed)  # type: ignore[arg-type]


def test_nothing_to_do_needs_nobody() -> None:
    assert workers_needed(load(), TERMS) == 0


def test_what_waits_is_done_within_the_window() -> None:
    assert places_needed(load(ready=2_000, queued=400), TERMS) == 2_400 * 1_000 / 300_000
    assert workers_needed(load(ready=2_400), TERMS) == 1
    assert workers_needed(load(ready=2_401), TERMS) == 2


def test_the_fullest_minute_counts_as_it_comes() -> None:
    assert places_needed(load(coming=[0, 0, 1_200, 0, 0]), TERMS) == 20


def test_nobody_is_sent_away_with_work_in_hand() -> None:
    assert workers_needed(load(running=17), TERMS) == 3


def test_a_lane_without_history_is_taken_to_need_a_second_per_run() -> None:
    assert places_needed(load(ready=600, mean_ms=None), TERMS) == 2
