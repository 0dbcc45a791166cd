"""Settings of the scheduler from the command line and the environment, and the page that describes them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

from noontide.actors.settings import SchedulerSettings
from noontide.core.errors import InvalidDefinition
from noontide.core.limits import Limits

SCHEDULER_VARIABLE = "NOONTIDE_SCHEDULER_"
LIMIT_VARIABLE = "NOONTIDE_LIMIT_"


class Setting(NamedTuple):
    """One number somebody may change. The unit is the end of its name."""

    name: str
    variable: str
    default: int
    meaning: str


def scheduler_settings(environment: Mapping[str, str], assignments: Sequence[str] = ()) -> SchedulerSettings:
    """The defaults, changed by variables, changed by `NAME=VALUE` assignments.

    Raises InvalidDefinition for an unknown name or a value that is not a whole number above 0.
    """
    chosen = {setting.name: environment[setting.variable] for setting in settings() if setting.variable in environment}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidDefinition.of("", f"{assignment!r} is not NAME=VALUE")
        chosen[name.strip()] = value.strip()
    numbers = {name: _number(name, value) for name, value in chosen.items()}
    limits = {field.name for field in fields(Limits)}
    definition = replace(Limits(), **{name: number for name, number in numbers.items() if name in limits})
    chosen_here = {name: number for name, number in numbers.items() if name not in limits}
    return replace(SchedulerSettings(definition=definition), **chosen_here)  # type: ignore[arg-type] # by name


def settings() -> Iterator[Setting]:
    """All of them: how a slot works, then what a definition may be."""
    for kind, variable in ((SchedulerSettings, SCHEDULER_VARIABLE), (Limits, LIMIT_VARIABLE)):
        meanings = dict(_meanings(kind))
        for field in fields(kind):
            if isinstance(field.default, int):
                name = field.name
                yield Setting(name, variable + name.upper(), field.default, meanings.get(name, ""))


def settings_page() -> str:
    """The reference page as Markdown."""
    lines = [
        "# Settings",
        "",
        "Written from the code by `python -m noontide.apps.settings`; change that, not this page.",
        "",
        "Each can be given to `noontide scheduler` and `noontide dev` as `--setting NAME=VALUE`, or as a variable of",
        "the environment. The unit is the end of the name: `_ms` milliseconds, `_bytes` bytes, `_chars` characters,",
        "else a count.",
        "",
        "| name | default | meaning | variable |",
        "| --- | ---: | --- | --- |",
        *(f"| `{each.name}` | {each.default:,} | {each.meaning} | `{each.variable}` |" for each in settings()),
    ]
    return "\n".join(lines) + "\n"


def _number(name: str, text: str) -> int:
    known = {setting.name for setting in settings()}
    if name not in known:
        raise InvalidDefinition.of(f"/{name}", f"is not a setting; known are {', '.join(sorted(known))}")
    if not text.isascii() or not text.replace("_", "").isdigit() or int(text) == 0:
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
