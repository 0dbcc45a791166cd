"""Schedulers and workers that are killed, frozen and restarted at random: nothing is lost or double."""

from __future__ import annotations

from pathlib import Path

import pytest

from noontide.testing.chaos import ChaosOptions, Outcome, run_chaos


def assert_clean(outcome: Outcome, *, least: int) -> None:
    assert outcome.ok, outcome.as_json()
    assert outcome.occurrences.expected > least
    assert outcome.runs.starts >= outcome.runs.claims > least // 4


def test_a_short_chaos(tmp_path: Path) -> None:
    outcome = run_chaos(ChaosOptions(seconds=7, seed=11, jobs=80, workers=2, logs=tmp_path))
    assert_clean(outcome, least=400)
    assert sum(outcome.blows.values()) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_a_longer_chaos(tmp_path: Path, seed: int) -> None:
    outcome = run_chaos(ChaosOptions(seconds=60, seed=seed, logs=tmp_path))
    assert_clean(outcome, least=8_000)
    assert len(outcome.blows) == 6
