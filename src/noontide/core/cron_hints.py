"""What to say when somebody pastes a schedule of another system: the accepted form of the same thing."""

from __future__ import annotations

import re

_CRON_LIST = re.compile(r"\S+(?:\s+\S+){4}(?:\s*[,;|\n]\s*\S+(?:\s+\S+){4})+\s*")
_EVENTBRIDGE_UNITS = {"minute": "M", "hour": "H", "day": "D"}
_GO_DURATION = re.compile(r"(?:\d+h)?(?:\d+m)?(?:\d+s)?", re.ASCII)
_SYSTEMD = re.compile(r"(?:.*\d:\d.*|.*\*-.*|.*\.\..*|minutely|hourly|daily|weekly|monthly|yearly|annually)", re.DOTALL)


def foreign_dialect(text: str) -> str | None:
    """A sentence for a text that reads like another dialect, None for anything else."""
    text = text.strip()
    lower = text.lower()
    if lower.startswith("rate("):
        return _rate(lower)
    if lower.startswith("cron("):
        return _eventbridge(text)
    if lower.startswith("crontab("):
        return "crontab(...) of Celery is not a cron expression; write five fields such as '30 0 * * *'"
    if lower.startswith(("cron_tz=", "tz=")):
        return "a time zone in the expression is not accepted; put it in the field timezone of the job"
    if lower.startswith("@reboot"):
        return "@reboot names no time; a job runs at times, not at the start of a process"
    if lower.startswith("@every"):
        return f'@every is an interval; write {{"every": "{_iso(lower.removeprefix("@every").strip()) or "PT5M"}"}}'
    return _by_shape(text, lower)


def _by_shape(text: str, lower: str) -> str | None:
    if _CRON_LIST.fullmatch(text):
        return 'more than one expression in a string; give them as a list: {"cron": ["0 13 * * *", "0 17 * * *"]}'
    if lower and _GO_DURATION.fullmatch(lower):
        return f'{text} is a duration, not a cron expression; write {{"every": "{_iso(lower)}"}}'
    if re.fullmatch(r"P(?:\d.*|T\d.*)", text):
        return f'{text} is a duration, not a cron expression; write {{"every": "{text}"}}'
    if _SYSTEMD.fullmatch(lower):
        return f"{text[:64]} is a calendar event of systemd; write five fields such as '30 2 * * 1-5', or @daily"
    return None


def _rate(lower: str) -> str:
    found = re.fullmatch(r"rate\(\s*(\d+)\s+(minute|hour|day)s?\s*\)", lower, re.ASCII)
    every = "PT5M"
    if found:
        letter = _EVENTBRIDGE_UNITS[found[2]]
        every = f"P{found[1]}D" if letter == "D" else f"PT{found[1]}{letter}"
    return f'rate(...) of EventBridge is an interval; write {{"every": "{every}"}}'


def _eventbridge(text: str) -> str:
    return (
        f"{text[:64]} is EventBridge's form, whose days of the week count from 1 = Sunday; write the five fields "
        "minute hour day-of-month month day-of-week alone, with names such as MON for the days"
    )


def _iso(lower: str) -> str | None:
    """`1h30m` as ISO 8601, None when it is not of that form."""
    return f"PT{lower.upper()}" if lower and _GO_DURATION.fullmatch(lower) else None
