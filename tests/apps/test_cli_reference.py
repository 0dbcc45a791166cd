"""docs/reference/cli.md names every command and every option there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from noontide.apps.cli.agents import agents
from noontide.apps.cli.api import api
from noontide.apps.cli.calendars import calendars
from noontide.apps.cli.config import config
from noontide.apps.cli.demo import demo
from noontide.apps.cli.forecast import forecast
from noontide.apps.cli.history import history
from noontide.apps.cli.jobs import jobs
from noontide.apps.cli.partitions import partitions
from noontide.apps.cli.runs import runs
from noontide.apps.cli.tenants import tenants
from noontide.apps.cli.tokens import tokens
from noontide.apps.cli.workers import workers

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text("utf-8")


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


GROUPS = [
    jobs,
    runs,
    workers,
    partitions,
    tenants,
    calendars,
    forecast,
    history,
    agents,
    config,
    tokens,
    api,
    demo,
]
ALL = [found for group in GROUPS for found in commands(group, f"noontide {group.name}")]


@pytest.mark.parametrize("path, command", ALL, ids=[path for path, _ in ALL])
def test_the_page_names_it(path: str, command: click.Command) -> None:
    assert f"`{path}" in PAGE
    for option in command.params:
        if isinstance(option, click.Option):
            for flag in (*option.opts, *option.secondary_opts):
                assert flag in PAGE, f"{path} {flag}"
