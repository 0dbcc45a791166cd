"""Reading the policies of a definition that have parts: retry, timing, calendar, notify, labels.

Each reader takes (value, pointer, findings) and gives (policy, long form): the long form is None when the value was
written in it already, so that its text can be kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from noontide.core.durations import format_duration
from noontide.core.errors import InvalidDefinition
from noontide.core.fields import (
    Findings,
    duration,
    escape,
    integer,
    members,
    name,
    one_of,
    seconds,
    several,
    text,
)
from noontide.core.limits import DAY_MS
from noontide.core.occurrence import Timing, parse_timing
from noontide.core.policies import (
    CalendarRule,
    ExponentialBackoff,
    FixedDelays,
    Jitter,
    Notify,
    NotifyOn,
    RetryPolicy,
)
from noontide.core.schedule import OneOff

SPAN_MAX_MS = 366 * DAY_MS
WINDOW_MAX_MS = 7 * DAY_MS
STREAK_MAX = 1_000
_ANY = OneOff(at_ms=0)

_RETRY_FIELDS = ("max_attempts", "backoff", "base", "base_sec", "cap", "cap_sec", "jitter")
_read_jitter = one_of(Jitter)
_read_notify_on = several(one_of(NotifyOn), len(NotifyOn))
_NOTIFY_FIELDS = (
    "on", "to", "streak", "late_after", "late_after_sec", "nothing_ran_after", "nothing_ran_after_sec",
)  # fmt: skip
_NOTIFY_BOUNDS = {
    "streak": integer(2, STREAK_MAX), "late_after": duration(SPAN_MAX_MS), "nothing_ran_after": duration(SPAN_MAX_MS),
}  # fmt: skip


def in_long_names(given: dict[str, object], names: tuple[str, ...], pointer: str) -> dict[str, object] | None:
    """The members with `<name>_sec` rewritten to `<name>` as ISO 8601 text; None when there is none to rewrite.

    Raises InvalidDefinition when both are given or the seconds are not acceptable.
    """
    if not any(f"{long}_sec" in given for long in names):
        return None
    long_form: dict[str, object] = {}
    for member, value in given.items():
        long = member.removesuffix("_sec")
        if long == member or long not in names:
            long_form[member] = value
        elif long in given:
            raise InvalidDefinition.of(f"{pointer}/{member}", f'is given twice: as "{member}" and as "{long}"')
        else:
            long_form[long] = format_duration(seconds(SPAN_MAX_MS)(value, f"{pointer}/{member}"))
    return long_form


def read_retry(value: object, pointer: str, findings: Findings) -> tuple[RetryPolicy, object]:
    """The retry policy. A list of delays without `max_attempts` allows one attempt more than it has delays."""
    given = members(value, pointer, _RETRY_FIELDS, findings)
    long_form = in_long_names(given, ("base", "cap"), pointer)
    given = long_form or given
    own = Findings(findings.limits)
    backoff = given.get("backoff", "exponential")
    policy: ExponentialBackoff | FixedDelays | None
    if isinstance(backoff, list):
        policy = _fixed_delays(backoff, given, pointer, own)
        attempts = len(backoff) + 1
    else:
        policy = _exponential(backoff, given, pointer, own)
        attempts = RetryPolicy().max_attempts
    if "max_attempts" in given:
        read = integer(1, findings.limits.attempts_max)
        attempts = own.read(read, given["max_attempts"], f"{pointer}/max_attempts") or attempts
    if own.problems or policy is None:
        raise InvalidDefinition(tuple(own.problems))
    return RetryPolicy(max_attempts=attempts, backoff=policy), long_form


def _fixed_delays(backoff: list[object], given: dict[str, object], pointer: str, own: Findings) -> FixedDelays | None:
    limits = own.limits
    for member in ("base", "cap", "jitter"):
        if member in given:
            own.refuse(f"{pointer}/{member}", "means nothing beside a list of delays")
    at = f"{pointer}/backoff"
    if not 0 < len(backoff) <= limits.delays_max:
        own.refuse(at, f"must be a list of 1 to {limits.delays_max} durations")
        return None
    read = duration(limits.delay_max_ms)
    delays = [own.read(read, item, f"{at}/{position}") for position, item in enumerate(backoff)]
    return FixedDelays(delays_ms=tuple(delay for delay in delays if delay is not None))


def _exponential(backoff: object, given: dict[str, object], pointer: str, own: Findings) -> ExponentialBackoff | None:
    if backoff != "exponential":
        own.refuse(f"{pointer}/backoff", 'must be "exponential" or a list of durations such as ["PT10S", "PT2M"]')
    read = duration(own.limits.delay_max_ms)
    usual = ExponentialBackoff()
    base_ms, cap_ms = (
        own.read(read, given[member], f"{pointer}/{member}") if member in given else default
        for member, default in (("base", usual.base_ms), ("cap", usual.cap_ms))
    )
    jitter = own.read(_read_jitter, given["jitter"], f"{pointer}/jitter") if "jitter" in given else usual.jitter
    if base_ms is None or cap_ms is None or jitter is None:
        return None
    if cap_ms < base_ms:
        own.refuse(f"{pointer}/cap", f"must not be shorter than base ({format_duration(base_ms)})")
    return ExponentialBackoff(base_ms=base_ms, cap_ms=cap_ms, jitter=jitter)


def read_timing(value: object, pointer: str, findings: Findings) -> tuple[Timing, object]:
    """The timing: a mode by name, or a window."""
    long_form = None
    if isinstance(value, dict):
        value = members(value, pointer, ("window", "window_sec"), findings)
        long_form = in_long_names(value, ("window",), pointer)
    # The schedule decides the default only, and this value is no default.
    timing = parse_timing(long_form or value, schedule=_ANY, pointer=pointer)
    if timing.window_ms > WINDOW_MAX_MS:
        raise InvalidDefinition.of(f"{pointer}/window", f"must be at most {format_duration(WINDOW_MAX_MS)}")
    return timing, long_form


def read_calendar(value: object, pointer: str, findings: Findings) -> tuple[CalendarRule, object]:
    """Names of calendars; whether they exist is the owner's question, not the document's."""
    given = members(value, pointer, ("exclude", "include"), findings)
    read = several(name(findings.limits.name_max_chars), findings.limits.calendars_max)
    exclude = findings.read(read, given.get("exclude", []), f"{pointer}/exclude")
    include = findings.read(read, given.get("include", []), f"{pointer}/include")
    return CalendarRule(exclude=exclude or (), include=include or ()), None


def read_notify(value: object, pointer: str, findings: Findings) -> tuple[Notify, object]:
    """Who is told of what; without `on` of dead runs only."""
    given = members(value, pointer, _NOTIFY_FIELDS, findings)
    long_form = in_long_names(given, ("late_after", "nothing_ran_after"), pointer)
    given = long_form or given
    channels = several(name(findings.limits.name_max_chars), findings.limits.channels_max)
    on = findings.read(_read_notify_on, given.get("on", ["dead"]), f"{pointer}/on") or ()
    to = findings.read(channels, given.get("to", []), f"{pointer}/to")
    if to == ():
        findings.refuse(f"{pointer}/to", "must name at least one channel")
    if NotifyOn.NOTHING_RAN in on and "nothing_ran_after" not in given:
        findings.refuse(f"{pointer}/nothing_ran_after", 'is needed with "nothing_ran": after how long, such as "PT26H"')
    streak, late_after_ms, nothing_ran_after_ms = (
        findings.read(read, given[member], f"{pointer}/{member}") if member in given else None
        for member, read in _NOTIFY_BOUNDS.items()
    )
    notify = Notify(
        on=on, to=to or (), streak=streak, late_after_ms=late_after_ms, nothing_ran_after_ms=nothing_ran_after_ms
    )
    return notify, long_form


def read_labels(value: object, pointer: str, findings: Findings) -> tuple[Mapping[str, str], object]:
    """Labels: names to short texts."""
    limits = findings.limits
    if not isinstance(value, dict) or len(value) > limits.labels_max:
        raise InvalidDefinition.of(pointer, f"must be an object of at most {limits.labels_max} names and texts")
    read_name, read_text = name(limits.name_max_chars), text(limits.text_max_chars)
    for label, content in value.items():
        at = f"{pointer}/{escape(label[:64])}"
        findings.read(read_name, label, at)
        findings.read(read_text, content, at)
    return value, None
