"""What the tests of bad records share: a scheduler at work, and the rejections of what was written to it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.integration.installation import Installation, Seen
from tests.integration.scheduler_process import SchedulerProcess

from noontide.records.topics import Layout

PAST = "2026-01-01T00:00:00Z"


class Running(NamedTuple):
    """An installation with a scheduler that owns all of it, and a registered topic."""

    installation: Installation
    orders: str
    scheduler: SchedulerProcess

    def once(self, **fields: object) -> dict[str, object]:
        """A valid definition that is due at once."""
        return {"run_at": PAST, "target": f"kafka://{self.orders}", **fields}


@contextmanager
def running_scheduler(bootstrap: str, folder: Path) -> Iterator[Running]:
    """A scheduler that owns all slots; it must end cleanly and have met nothing unexpected."""
    prefix = f"t{uuid.uuid4().hex[:8]}."
    with Installation.create(bootstrap, prefix, domains=("orders", "hung")) as installation:
        orders = installation.create_target("orders")
        installation.configure("domain/orders", {"tenants": ["shop"]})
        installation.configure("domain/hung", {"tenants": "*"})
        with SchedulerProcess(installation, folder / "data") as scheduler:
            scheduler.start().until_owner()
            yield Running(installation, orders, scheduler)
            assert "unexpected; replaying" not in scheduler.log
            assert "Traceback" not in scheduler.log
            assert scheduler.terminate() == 0


def id_in(layout: Layout, partition: int, *, start: str) -> str:
    """An id that belongs to a partition."""
    return next(name for number in range(1_000) if layout.partition_of(name := f"{start}-{number}") == partition)


def rejections(installation: Installation, places: list[tuple[int, int]], *, domain: str = "public") -> list[Seen]:
    """The rejections of these (partition, offset) pairs, in this order; waits for them."""
    topic = f"requests.{domain}"

    def by_place(found: list[Seen]) -> dict[tuple[int, int], Seen]:
        origins = [(each.document["origin"], each) for each in found]
        return {(origin["partition"], origin["offset"]): each for origin, each in origins if origin["topic"] == topic}  # type: ignore[index]

    found = installation.log("rejected").until(
        lambda all_: set(places) <= by_place(all_).keys(), what=f"rejections of {places}"
    )
    placed = by_place(found)
    return [placed[place] for place in places]


def check_alive(running: Running, partition: int) -> None:
    """A valid request behind everything else in the partition is carried out."""
    installation = running.installation
    job_id = id_in(installation.layout, partition, start=f"alive-{uuid.uuid4().hex[:6]}")
    installation.request(job_id, running.once())
    installation.log(running.orders).of_key(job_id, within_s=10)
