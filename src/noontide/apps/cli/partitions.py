"""`noontide partitions`: who owns which slots, who stands by, and how they are; read from `owners`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from noontide.apps.cli.common import Cluster, broker_options, json_option
from noontide.apps.cli.spans import words
from noontide.apps.cli.tables import note, show_json, show_table

if TYPE_CHECKING:
    from noontide.records.owners import Said
    from noontide.records.topics import Layout

HEADS: Final = ("slot", "partitions", "owner", "state", "waiting", "late", "last cycle", "standby")
SILENT_MS: Final = 20_000
"""Who has said nothing for so long is likely gone: owners and standbys speak every five seconds."""


@click.group(invoke_without_command=True)
@json_option
@broker_options
@click.pass_context
def partitions(ctx: click.Context, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """Show who owns which partitions, who keeps a copy of them, and how they are.

    "waiting" are requests not decided yet, "late" is how long what is due has been waiting. A take-over that takes long
    shows how far the replay is.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = cluster
        return
    from noontide.adapters.system_clock import wall_now_ms

    layout = cluster.layout()
    found = _read(cluster, layout)
    if as_json:
        for slot in range(layout.slots):
            show_json(slot_as_json(layout, slot, found))
    else:
        rows = (row_of(layout, slot, found, wall_now_ms()) for slot in range(layout.slots))
        show_table(HEADS, rows, empty="")
        _warn(layout, found, wall_now_ms())


def _read(cluster: Cluster, layout: Layout) -> list[Said]:
    from noontide.apps.cli.reading import Reader

    return Reader(connection=cluster.connection(), layout=layout).owners()


def owner_of(slot: int, found: Sequence[Said]) -> Said | None:
    """Who said last that it owns a slot."""
    return next((each for each in found if each.slot == slot and each.role == "owner"), None)


def standbys_of(slot: int, found: Sequence[Said]) -> list[Said]:
    """Who keeps a copy of a slot."""
    return [each for each in found if each.slot == slot and each.role == "standby"]


def row_of(layout: Layout, slot: int, found: Sequence[Said], now_ms: int) -> tuple[str, ...]:
    """A line of the table."""
    numbers, owner = layout.partitions_of(slot), owner_of(slot, found)
    held = f"{numbers[0]}-{numbers[-1]}"
    standbys = ", ".join(_standby(each, now_ms) for each in standbys_of(slot, found)) or "-"
    if owner is None:
        return str(slot), held, "-", "nobody yet", "", "", "", standbys
    status = owner.status
    return (
        str(slot),
        held,
        owner.process,
        _state(owner, now_ms),
        f"{status.lag:,}",
        words(status.late_ms) if status.late_ms else "-",
        f"{words(max(0, now_ms - status.cycle_at))} ago" if status.cycle_at else "-",
        standbys,
    )


def _state(said: Said, now_ms: int) -> str:
    if (silence_ms := now_ms - said.said_ms) > SILENT_MS:
        return f"silent for {words(silence_ms)}"
    status = said.status
    if status.total > status.read:
        return f"{status.phase} {status.read * 100 // status.total} %"
    return status.phase


def _standby(said: Said, now_ms: int) -> str:
    behind = f", {said.status.lag:,} behind" if said.status.lag else ""
    return f"{said.process} ({_state(said, now_ms)}{behind})"


def slot_as_json(layout: Layout, slot: int, found: Sequence[Said]) -> dict[str, object]:
    """A slot for programs; times are milliseconds since the epoch."""
    numbers, owner = layout.partitions_of(slot), owner_of(slot, found)
    return {
        "slot": slot,
        "partitions": [numbers[0], numbers[-1]],
        "owner": None if owner is None else _as_json(owner),
        "standbys": [_as_json(each) for each in standbys_of(slot, found)],
    }


def _as_json(said: Said) -> dict[str, object]:
    return {
        "process": said.process,
        "since": said.since_ms,
        "said_at": said.said_ms,
        **said.status._asdict(),
    }


def _warn(layout: Layout, found: Sequence[Said], now_ms: int) -> None:
    alive = [each for each in found if now_ms - each.said_ms <= SILENT_MS]
    bare = [str(slot) for slot in range(layout.slots) if not standbys_of(slot, alive)]
    if bare and len({each.process for each in alive}) > 1:
        note(f"without a standby: slots {', '.join(bare)}")
    elif bare:
        note("one scheduler or none: nobody stands by, a take-over has to replay")


@partitions.command("reslot")
@click.argument("slots", type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_options
def reslot_command(slots: int, yes: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """Change the number of slots: how many processes can share the work. Schedulers and workers must be stopped.

    Topics that owners keep for themselves (`state`, `leases`, `signals`, `worker-events.*`, `runs.*`) are made anew and
    filled; nothing else moves. A change that was interrupted goes on when it is started again.
    """
    from noontide.adapters.kafka.foreign_topics import check_reachable
    from noontide.adapters.kafka.reslot import reslot
    from noontide.apps.wiring import GROUP

    connection = cluster.connection()
    check_reachable(connection)
    if not yes:
        click.confirm(f"Change {cluster.prefix}* at {cluster.bootstrap} to {slots} slots?", abort=True)
    done = reslot(connection, cluster.prefix, slots, group=f"{cluster.prefix}{GROUP}", say=note)
    click.echo(
        f"{done.old_slots} -> {done.new_slots} slots, {done.records:,} records moved; start the schedulers again"
    )
