"""How often and how long a channel is tried, and what is said when it is given up. Real channels: tests/integration."""

from __future__ import annotations

import logging

import pytest

from noontide.apps.agents.channels import Channels, MailSettings, NotTold, TellSettings

ALERT = {"alert_id": "dead:a", "to": ["feed"], "tenant": "default", "job_id": "a", "kind": "dead"}


async def told(failures: list[Exception], **limits: int) -> tuple[dict[str, str | None], int]:
    """What becomes of an alert when the first attempts fail so, and how many attempts there were."""
    attempts = 0

    async def publish(_topic: str, _key: bytes, _value: bytes) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= len(failures):
            raise failures[attempts - 1]

    channels = Channels(
        {"feed": {"topic": "ops"}}.get,
        publish,
        mail=MailSettings(),
        limits=TellSettings(pause_ms=1, **limits),
    )
    try:
        return await channels.tell(ALERT), attempts
    finally:
        await channels.close()


async def test_the_last_attempt_may_still_reach_it() -> None:
    assert await told([OSError("away")] * 4) == ({"feed": None}, 5)


async def test_after_the_last_attempt_it_is_given_up_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert await told([OSError("away")] * 9, attempts_max=3) == ({"feed": "away"}, 3)
    assert [each.levelno for each in caplog.records if "alert_given_up" in each.message] == [logging.ERROR]
    assert len([each for each in caplog.records if "alert_not_sent" in each.message]) == 3


async def test_a_refusal_for_good_is_not_repeated() -> None:
    assert await told([NotTold("no such topic")] * 9) == ({"feed": "no such topic"}, 1)


def test_pauses_double_up_to_a_bound() -> None:
    assert TellSettings().pauses_ms() == [500, 1000, 2000, 4000]
    assert TellSettings(attempts_max=9).pauses_ms()[-2:] == [30_000, 30_000]
    assert TellSettings(attempts_max=1).pauses_ms() == []
