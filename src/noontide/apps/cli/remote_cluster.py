"""`noontide workers`, `partitions` and `tenants share` over the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from noontide.apps.cli.tables import show_json, show_table

if TYPE_CHECKING:
    from noontide.client import Client

WORKER_HEADS: Final = ("worker", "lane", "runs", "oldest since (UTC)")
LANE_HEADS: Final = ("lane", "pending", "queued", "running", "retry_wait")
SLOT_HEADS: Final = ("slot", "partitions", "owner", "state", "waiting", "late (ms)", "last cycle (UTC)", "said (UTC)")
LIMITER_HEADS: Final = ("limiter", "at most", "starts/s", "given", "running", "waiting")
SHARE_HEADS: Final = ("lane", "ready", "queued", "running", "waiting")


def workers(client: Client, *, as_json: bool) -> None:
    """`workers`; the API counts runs by state."""
    found = client.workers()
    if as_json:
        show_json({"workers": found.items, "lanes": found.lanes})
        return
    rows = (tuple(str(each[name]) for name in ("worker", "lane", "runs", "oldest_since")) for each in found.items)
    show_table(WORKER_HEADS, rows, empty="no worker has a run")
    click.echo()
    lanes = sorted((found.lanes or {}).items())
    counts = ((lane, *(str(states.get(state, 0)) for state in LANE_HEADS[1:])) for lane, states in lanes)
    show_table(LANE_HEADS, counts, empty="no live runs in any lane")


def partitions(client: Client, *, as_json: bool) -> None:
    """`partitions`; the API knows owners, and not who stands by."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = client.partitions()
    if as_json:
        for slot in found:
            show_json(slot)
        return
    show_table(SLOT_HEADS, map(_slot_row, found), empty="")


def share(client: Client, tenant: str | None, *, as_json: bool) -> None:
    """`tenants share`."""
    if tenant is None:
        raise click.UsageError("over the API name the TENANT; all of them are read from Kafka: leave --server out")
    found = client.tenant_share(tenant)
    if as_json:
        show_json(found)
        return
    names = ("limiter", "concurrency_max", "starts_per_second_max", "given", "running", "waiting")
    show_table(LIMITER_HEADS, _rows(found["limiters"], names), empty="no limits, and nobody waits for a permit")
    click.echo()
    show_table(SHARE_HEADS, _rows(found["lanes"], SHARE_HEADS), empty="no live runs in any lane")


def _slot_row(slot: dict[str, Any]) -> tuple[str, ...]:
    first, last = slot["partitions"]
    if slot["owner"] is None:
        return str(slot["slot"]), f"{first}-{last}", "-", "nobody yet", "", "", "", ""
    values = (slot.get(name) for name in ("phase", "lag", "late_ms", "cycle_at", "said_at"))
    return str(slot["slot"]), f"{first}-{last}", slot["owner"], *("-" if each is None else str(each) for each in values)


def _rows(items: list[dict[str, Any]], names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [tuple("-" if each.get(name) is None else str(each[name]) for name in names) for each in items]
