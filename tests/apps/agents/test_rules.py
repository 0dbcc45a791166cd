"""Alerts that follow from how runs end."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from noontide.apps.agents.channels import sentence
from noontide.apps.agents.ledger import Ended, ended_of
from noontide.apps.agents.rules import AlertSettings, JobHealth, Wish, judge, silent
from noontide.apps.agents.wishes import NOBODY, wish_of
from noontide.core.policies import NotifyOn

ALL = Wish(on=frozenset(NotifyOn), to=("oncall",), tenant="t")
SETTINGS = AlertSettings(streak=3, late_after_ms=60_000)
WORDS = {"d": "dead", "s": "succeeded", "k": "skipped", "c": "cancelled"}


def ended(number: int, state: str, **fields: object) -> Ended:
    execution = {
        "run_id": f"a:{number}",
        "job_id": "a",
        "tenant": "t",
        "due": "2026-03-02T00:00:00.000Z",
        "ended_at": f"2026-03-02T00:00:{number:02}.000Z",
        "state": state,
        **fields,
    }
    found = ended_of(0, number, orjson.dumps(execution))
    assert found is not None
    return found


def kinds_of(states: str, wish: Wish = ALL) -> list[list[str]]:
    """The kinds of alerts after each end, by the first letters of the states."""
    health, found = JobHealth(), []
    for offset, letter in enumerate(states):
        judged = judge(health, wish, ended(offset, WORDS[letter]), SETTINGS)
        health = judged.health
        found.append([str(alert["kind"]) for alert in judged.alerts])
    return found


def test_dead_then_a_streak_once_then_recovered_once() -> None:
    assert kinds_of("ddddss") == [["dead"], ["dead"], ["dead", "streak"], ["dead"], ["recovered"], []]


def test_a_decision_not_to_run_neither_ends_nor_makes_a_streak() -> None:
    assert kinds_of("dkdcd")[-1] == ["dead", "streak"]


def test_only_what_is_wished_for() -> None:
    assert kinds_of("ddds", replace(ALL, on=frozenset({NotifyOn.STREAK}))) == [[], [], ["streak"], []]
    assert kinds_of("dds", Wish()) == [[], [], []]


def test_a_job_has_its_own_streak() -> None:
    assert kinds_of("ddd", replace(ALL, on=frozenset({NotifyOn.STREAK}), streak=2)) == [[], ["streak"], []]


def test_what_was_judged_before_changes_nothing() -> None:
    first = judge(JobHealth(), ALL, ended(1, "dead"), SETTINGS)
    again = judge(first.health, ALL, ended(1, "dead"), SETTINGS)
    assert (again.health, again.alerts) == (first.health, [])


def test_an_alert_has_an_id_of_its_own_end_and_a_sentence() -> None:
    (alert,) = judge(JobHealth(), ALL, ended(1, "dead", reason="timeout"), SETTINGS).alerts
    assert alert["alert_id"] == "dead:a:1:1772409601000"
    assert sentence(alert) == "a: run a:1 is dead: timeout"


def test_late_is_told_once_until_a_run_begins_in_time() -> None:
    health, kinds = JobHealth(), []
    for offset, late_ms in enumerate([60_000, 60_001, 90_000, 5, 120_000]):
        judged = judge(health, ALL, ended(offset, "succeeded", late_ms=late_ms), SETTINGS)
        health = judged.health
        kinds.append([alert["kind"] for alert in judged.alerts])
    assert kinds == [[], ["late"], [], [], ["late"]]
    (alert,) = judge(
        JobHealth(), replace(ALL, late_after_ms=5_000), ended(0, "succeeded", late_ms=5_001), SETTINGS
    ).alerts
    assert sentence(alert) == "a: run a:0 began 5 s late"


def test_leases_that_were_lost_are_counted() -> None:
    attempts = '[{"attempt":1,"reason":"lease_lost"},{"attempt":2,"reason":"lease_lost"}]'
    (alert,) = judge(JobHealth(), ALL, ended(0, "succeeded", attempts=attempts), SETTINGS).alerts
    assert (alert["kind"], alert["count"], sentence(alert)) == ("lease_lost", 2, "a: run a:0 lost 2 leases")


def test_nothing_ran_for_longer_than_wished() -> None:
    wish = replace(ALL, nothing_ran_after_ms=1_000, since_ms=5_000)
    assert silent("a", wish, JobHealth(), 6_000) is None
    alert = silent("a", wish, JobHealth(), 6_001)
    assert alert is not None
    assert (alert["alert_id"], sentence(alert)) == (
        "nothing_ran:a:5000",
        "a: nothing has run since 1970-01-01T00:00:05.000Z",
    )
    ran = judge(JobHealth(), wish, ended(1, "succeeded"), SETTINGS).health
    assert ran.last_ms == 1_772_409_601_000
    assert silent("a", wish, ran, ran.last_ms + 1_000) is None
    assert silent("a", replace(wish, on=frozenset({NotifyOn.DEAD})), ran, ran.last_ms + 1_001) is None


def test_health_is_stored_only_when_there_is_something_to_remember() -> None:
    assert JobHealth(offset=7).document() is None
    health = judge(JobHealth(), ALL, ended(1, "dead"), SETTINGS).health
    document = health.document()
    assert document is not None
    assert JobHealth.of(document) == health


def test_wishes_of_a_definition() -> None:
    notify = {"on": ["dead", "late"], "to": ["x"], "late_after": "PT5S", "streak": 4, "nothing_ran_after": "P1D"}
    assert wish_of(orjson.dumps({"tenant": "billing", "notify": notify}), 17) == Wish(
        on=frozenset({"dead", "late"}), to=("x",), tenant="billing", streak=4, late_after_ms=5_000,
        nothing_ran_after_ms=86_400_000, since_ms=17,
    )  # fmt: skip
    assert wish_of(b'{"notify": {"to": ["x"]}}', 0).on == frozenset({"dead"})


@pytest.mark.parametrize(
    "value", [b"{}", b'{"notify": null}', b'{"notify": {"late_after": "soon"}}', b'["notify"]', b'"notify']
)
def test_what_wishes_nothing(value: bytes) -> None:
    assert not (wish_of(value, 0).on and wish_of(value, 0).to)
    assert NOBODY.on == frozenset()
