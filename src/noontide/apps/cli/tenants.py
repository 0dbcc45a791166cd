"""`noontide tenants`: who has how much of what is shared, read from `state`, `leases` and `config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from noontide.apps.cli.common import Cluster, broker_options, json_option
from noontide.apps.cli.tables import show_json, show_table

if TYPE_CHECKING:
    from noontide.apps.shares import LaneShare, Share

LIMITER_HEADS: Final = ("limiter", "tenant", "at most", "weight", "given", "running", "waiting")
LANE_HEADS: Final = ("lane", "tenant", "weight", "ready", "queued", "running", "waiting")


@click.group()
def tenants() -> None:
    """Tenants, and what they share."""


@tenants.command()
@click.argument("tenant", required=False)
@json_option
@broker_options
def share(tenant: str | None, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """Show what each tenant has: permits given, used and waited for, and its runs in each lane. Of one TENANT if named.

    Permits that are given and not used belong to runs that are on their way to a worker.
    """
    from noontide.apps.cli.reading import Reader, config_view
    from noontide.apps.shares import lane_shares, limiter_shares
    from noontide.records.state import LIMITER

    reader = Reader(connection=cluster.connection(), layout=cluster.layout())
    slots = range(reader.layout.slots)
    book, runs = config_view(reader).limits, reader.leases(slots)
    limiters = [each for each in limiter_shares(reader.facts(slots, LIMITER), runs, book) if tenant in (None, each[1])]
    lanes = [each for each in lane_shares(runs, book) if tenant in (None, each.tenant)]
    if as_json:
        show_json({"limiters": [each._asdict() for each in limiters], "lanes": [each._asdict() for each in lanes]})
        return
    show_table(LIMITER_HEADS, map(_limiter_row, limiters), empty="no limits, and nobody waits for a permit")
    click.echo()
    show_table(LANE_HEADS, map(_lane_row, lanes), empty="no live runs in any lane")


def _limiter_row(share: Share) -> tuple[str, ...]:
    bounds = [f"{share.concurrency_max} at a time"] if share.concurrency_max is not None else []
    if share.starts_per_second_max is not None:
        bounds.append(f"{share.starts_per_second_max:g}/s")
    counts = (share.given, share.running, share.waiting)
    return share.limiter, share.tenant, ", ".join(bounds) or "no bound", f"{share.weight:g}", *map(str, counts)


def _lane_row(share: LaneShare) -> tuple[str, ...]:
    return share.lane, share.tenant, f"{share.weight:g}", *map(str, share[3:])
