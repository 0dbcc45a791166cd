"""`noontide`: the command line, one module per noun, imported when it is used."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Final, NamedTuple

import click


class _Entry(NamedTuple):
    """Where a command is, and what the list of commands says about it without importing it."""

    module: str
    attribute: str
    summary: str


_COMMANDS: Final = {
    "demo": _Entry("noontide.apps.cli.demo", "demo", "See jobs run at their times: broker, scheduler, jobs in one go."),
    "dev": _Entry("noontide.apps.cli.dev", "dev", "A broker, the topics and a scheduler in one command."),
    "scheduler": _Entry("noontide.apps.cli.scheduler", "scheduler", "Run a scheduler process."),
    "worker": _Entry("noontide.apps.cli.worker", "worker", "Run a worker process."),
    "api": _Entry("noontide.apps.cli.api", "api", "Run an API process."),
    "agents": _Entry("noontide.apps.cli.agents", "agents", "Run the agents: alerts and usage."),
    "jobs": _Entry("noontide.apps.cli.jobs", "jobs", "Jobs: put, get, list, delete, pause, resume, trigger, backfill."),
    "runs": _Entry("noontide.apps.cli.runs", "runs", "Runs: watch, list, show, cancel, retry, redrive."),
    "workers": _Entry("noontide.apps.cli.workers", "workers", "Who runs what, and what waits in each lane."),
    "tenants": _Entry("noontide.apps.cli.tenants", "tenants", "Tenants: who has how much of what is shared."),
    "forecast": _Entry("noontide.apps.cli.forecast", "forecast", "Runs of each minute of the next day, and its peaks."),
    "partitions": _Entry("noontide.apps.cli.partitions", "partitions", "Who owns which slots, and who stands by."),
    "calendars": _Entry("noontide.apps.cli.calendars", "calendars", "Calendars: put, diff, list, show."),
    "config": _Entry("noontide.apps.cli.config", "config", "Tenants, calendars, targets: put, get, list, delete."),
    "tokens": _Entry("noontide.apps.cli.tokens", "tokens", "Tokens of the HTTP API: create, list, rotate, revoke."),
    "history": _Entry("noontide.apps.cli.history", "history", "Executions in PostgreSQL: init, status, prune, watch."),
    "preview": _Entry("noontide.apps.cli.preview", "preview", "When a schedule or a job would run, without a broker."),
    "topics": _Entry("noontide.apps.cli.topics", "topics", "Noontide's topics: compare, create, describe."),
}  # fmt: skip


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; commands that are not installed are left out."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands there are, in the order of the help page."""
        return [name for name, entry in _COMMANDS.items() if find_spec(entry.module) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of the name."""
        entry = _COMMANDS.get(cmd_name)
        if entry is None or find_spec(entry.module) is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].summary) for name in self.list_commands(ctx)])


def _show_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's form
    if value:
        from importlib.metadata import version

        click.echo(f"noontide {version('noontide')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def main() -> None:
    """Noontide: jobs at their times, on Kafka.

    To see it: `noontide demo`. To have it on this machine: `noontide dev`.
    """


if __name__ == "__main__":
    main()
