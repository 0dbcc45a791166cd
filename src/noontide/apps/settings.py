"""Settings of scheduler and API from the command line and the environment, and the page that describes them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

from noontide.actors.settings import SchedulerSettings
from noontide.apps.api.settings import ApiSettings
from noontide.core.errors import InvalidDefinition
from noontide.core.limits import Limits

MAY_BE_ZERO = frozenset({"standby_replicas"})
T = TypeVar("T", SchedulerSettings, ApiSettings)


class Setting(NamedTuple):
    """One number somebody may change. The unit is the end of its name. group: whose it is."""

    group: str
    name: str
    variable: str
    default: int
    meaning: str


class _Group(NamedTuple):
    kind: type
    variable: str
    title: str


SCHEDULER = _Group(SchedulerSettings, "NOONTIDE_SCHEDULER_", "Scheduler")
API = _Group(ApiSettings, "NOONTIDE_API_", "API")
DEFINITIONS = _Group(Limits, "NOONTIDE_LIMIT_", "Definitions")


def scheduler_settings(environment: Mapping[str, str], assignments: Sequence[str] = ()) -> SchedulerSettings:
    """The defaults, changed by variables, changed by `NAME=VALUE` assignments.

    Raises InvalidDefinition for an unknown name or a value that is not a whole number above 0; see `MAY_BE_ZERO`.
    """
    return _chosen(SchedulerSettings(), SCHEDULER, environment, assignments)


def api_settings(environment: Mapping[str, str], assignments: Sequence[str] = ()) -> ApiSettings:
    """As `scheduler_settings`, for `noontide api`."""
    return _chosen(ApiSettings(), API, environment, assignments)


def _chosen(defaults: T, group: _Group, environment: Mapping[str, str], assignments: Sequence[str]) -> T:
    known = {setting.name: setting for setting in settings(group, DEFINITIONS)}
    given = {name: environment[each.variable] for name, each in known.items() if each.variable in environment}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidDefinition.of("", f"{assignment!r} is not NAME=VALUE")
        given[name.strip()] = value.strip()
    numbers = {name: _number(name, value, known) for name, value in given.items()}
    limits = {name for name, each in known.items() if each.group == DEFINITIONS.title}
    definition = replace(Limits(), **{name: number for name, number in numbers.items() if name in limits})
    own: dict[str, Any] = {name: number for name, number in numbers.items() if name not in limits}
    return replace(defaults, definition=definition, **own)


def settings(*groups: _Group) -> Iterator[Setting]:
    """All of these groups; without any: how a slot works, how an API node works, then what a definition may be."""
    for kind, variable, title in groups or (SCHEDULER, API, DEFINITIONS):
        meanings = dict(_meanings(kind))
        for field in fields(kind):
            if isinstance(field.default, int):
                name = field.name
                yield Setting(title, name, variable + name.upper(), field.default, meanings.get(name, ""))


def settings_page() -> str:
    """The reference page as Markdown."""
    lines = [
        "# Settings",
        "",
        "Written from the code by `python -m noontide.apps.settings`; change that, not this page.",
        "",
        "Each can be given as `--setting NAME=VALUE`, or as a variable of the environment: those of the scheduler to",
        "`noontide scheduler` and `noontide dev`, those of the API to `noontide api`, those of definitions to all of",
        "them (the scheduler decides; the API refuses earlier). The unit is the end of the name: `_ms` milliseconds,",
        "`_sec` seconds, `_bytes` bytes, `_chars` characters, else a count.",
    ]
    for group in (SCHEDULER, API, DEFINITIONS):
        lines += [
            "",
            f"## {group.title}",
            "",
            "| name | default | meaning | variable |",
            "| --- | ---: | --- | --- |",
            *(f"| `{each.name}` | {each.default:,} | {each.meaning} | `{each.variable}` |" for each in settings(group)),
        ]
    return "\n".join(lines) + "\n"


def _number(name: str, text: str, known: Collection[str]) -> int:
    if name not in known:
        raise InvalidDefinition.of(f"/{name}", f"is not a setting; known are {', '.join(sorted(known))}")
    is_number = text.isascii() and text.replace("_", "").isdigit()
    if not is_number or (int(text) == 0 and name not in MAY_BE_ZERO):
        raise InvalidDefinition.of(f"/{name}", f"{text!r} is not a whole number above 0")
    return int(text)


def _meanings(kind: type) -> Iterator[tuple[str, str]]:
    """The text below each attribute of a class, or the comment behind it."""
    source = inspect.getsource(kind)
    lines = source.splitlines()
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for statement, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield statement.target.id, " ".join(str(after.value.value).split())
        else:
            yield statement.target.id, lines[statement.lineno - 1].partition("#")[2].strip()


if __name__ == "__main__":
    import sys

    sys.stdout.write(settings_page())
