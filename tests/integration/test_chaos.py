"""Schedulers, workers and brokers that are killed, frozen and restarted at random: nothing is lost or double."""

from __future__ import annotations

from pathlib import Path

import pytest

from noontide.testing.chaos import ChaosOptions, Outcome, run_chaos
from noontide.testing.chaos_brokers import BrokerBlow


def assert_clean(outcome: Outcome, *, least: int) -> None:
    assert outcome.ok, outcome.as_json()
    assert outcome.occurrences.expected > least
    assert outcome.runs.starts >= outcome.runs.claims > least // 4


def test_a_short_chaos_on_three_brokers(tmp_path: Path) -> None:
    outcome = run_chaos(ChaosOptions(seconds=15, seed=11, jobs=60, workers=2, brokers=3, logs=tmp_path))
    assert_clean(outcome, least=650)
    assert sum(outcome.blows.values()) >= 5
    assert sum(count for blow, count in outcome.blows.items() if blow in list(BrokerBlow)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_a_longer_chaos(tmp_path: Path, seed: int) -> None:
    outcome = run_chaos(ChaosOptions(seconds=60, seed=seed, logs=tmp_path))
    assert_clean(outcome, least=8_000)
    assert len(outcome.blows) == 6


@pytest.mark.slow
def test_a_longer_chaos_on_three_brokers(tmp_path: Path) -> None:
    outcome = run_chaos(ChaosOptions(seconds=120, seed=23, brokers=3, logs=tmp_path))
    assert_clean(outcome, least=16_000)
    assert {"freeze broker", "kill leader", "kill controller"} <= outcome.blows.keys()
