"""Who asks and who configures: requests of all kinds, in the right and the wrong place, alone and in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson

from noontide.adapters.memory.log import MemoryLog
from noontide.core.instants import format_instant
from noontide.ports.record_log import Record, TopicPartition
from noontide.records.topics import Layout
from noontide.testing.simulation.network import Site
from noontide.testing.simulation.witness import Witness

REGISTERED, UNREGISTERED, SICKLY = "orders", "elsewhere", "invoices"
UPSTREAM, HEIR = "job-0", "heir-0"
"""The second, which nobody changes, runs after the first has succeeded."""
LANES: Final = ("default", "bulk")
HANDLERS: Final = ("send", "bill")
FOLLOWERS: Final = {"follower-0": "job-0", "follower-1": "follower-0", "follower-2": "job-1"}
"""Jobs that wait for another, and for which; they are put once and left alone."""
Document = dict[str, Any]


class People:
    """Requesters and operators."""

    def __init__(self, site: Site, log: MemoryLog, layout: Layout, witness: Witness, now_ms: Any) -> None:
        self.asked: list[str] = []
        """Origins of definitions and deletions, each of which must be decided."""
        self.triggers: list[tuple[str, str]] = []
        """(origin, run id) of triggers."""
        self._site = site
        self._dice = site.dice
        self._log = log
        self._layout = layout
        self._witness = witness
        self._now_ms = now_ms
        self._known: dict[str, Document] = {}
        self._producers = 0

    # --- operators

    def configure(self, key: str, document: Mapping[str, object] | None) -> None:
        """Write a configuration, or with None remove it."""
        value = None if document is None else orjson.dumps(document)
        self._log.append(TopicPartition(self._layout.name("config"), 0), [Record(key.encode(), value)])

    def set_up(self) -> None:
        """What there is from the start."""
        for topic in (REGISTERED, SICKLY):
            self.configure(f"target/{topic}", {"topic": topic, "tenants": ["*"]})
        if self._dice.randrange(2):
            most = self._dice.choice((1, 2, 4))
            self.configure("tenant/acme", {"concurrency_max": most, "concurrency_keys": {"disk": 1}})
            self.configure("target/biller", {"handler": "bill", "concurrency_max": most})
            self._witness.caps |= {"tenant/acme": most, "target/biller": most, "key/acme/disk": 1}

    def reconfigure(self) -> None:
        """Change something that no job depends on, so that inputs and views change."""
        name = self._dice.choice(("lane/bulk", "domain/shop", "calendar/days", "target/absent"))
        documents: dict[str, Document | None] = {
            "lane/bulk": {},
            "domain/shop": {"tenants": "*"},
            "calendar/days": {"dates": ["2031-01-01"]},
            "target/absent": {"topic": "absent", "tenants": ["*"]},
        }
        self.configure(name, self._dice.choice((documents[name], documents[name], None)))
        self._site.tell(f"config {name}")

    # --- requesters

    async def define_all(self, count: int) -> None:
        """The jobs that everything is about, one after the other."""
        if self._dice.randrange(2):
            heir = {"id": HEIR, "after": [UPSTREAM], "target": {"topic": {"name": REGISTERED}}, "tenant": "acme"}
            self.asked.append(await self._ask(HEIR, heir))
        for number in range(count):
            self._known[f"job-{number}"] = self._definition(f"job-{number}")
            await self._put(f"job-{number}")
            await asyncio.sleep(self._dice.uniform(0, 0.4))

    async def define_followers(self) -> None:
        """Jobs that wait for those."""
        tenants = {job_id: document["tenant"] for job_id, document in self._known.items()}
        for job_id, upstream in FOLLOWERS.items():
            tenants[job_id] = tenants[upstream]
            document = {
                "id": job_id,
                "after": [upstream],
                "target": {"handler": "send"},
                "tenant": tenants[job_id],
                "lease": "PT3S",
                "timeout": "PT4S",
                "retry": {"backoff": ["PT1S"], "max_attempts": 2},
            }
            self.asked.append(await self._ask(job_id, document))

    async def act(self) -> None:
        """Ask for something."""
        if not self._known:
            return
        job_id = self._dice.choice(sorted(self._known))
        what = self._dice.choice(
            ("update", "update", "redefine", "pause", "delete", "trigger", "trigger", "cancel", "redrive", "nonsense")
        )
        self._site.tell(f"request {what} {job_id}")
        await getattr(self, f"_{what}")(job_id)

    async def pause_all(self) -> None:
        """Nothing falls due any more."""
        for job_id, document in self._known.items():
            document["paused"] = True
            await self._put(job_id)

    async def _update(self, job_id: str) -> None:
        fresh = self._definition(job_id)
        self._known[job_id] |= {"payload": fresh["payload"], "overlap": fresh["overlap"], "paused": False}
        await self._put(job_id)

    async def _redefine(self, job_id: str) -> None:
        self._known[job_id] = self._definition(job_id)
        await self._put(job_id)

    async def _pause(self, job_id: str) -> None:
        self._known[job_id]["paused"] = True
        await self._put(job_id)

    async def _delete(self, job_id: str) -> None:
        self.asked.append(await self._ask(job_id, None))

    async def _trigger(self, job_id: str) -> None:
        origin = await self._ask(job_id, {}, kind="trigger")
        topic, partition, offset = origin.split("/")
        misplaced = int(partition) != self._layout.partition_of(job_id)
        domain = topic.removeprefix("requests.")
        where = f"-{domain}-{partition}" if misplaced else "" if domain == "api" else f"-{domain}"
        self.triggers.append((origin, f"{job_id}:m{offset}{where}"))

    async def _cancel(self, job_id: str) -> None:
        await self._ask(job_id, {}, kind="cancel")

    async def _redrive(self, job_id: str) -> None:
        dead = [
            run_id for run_id, life in self._witness.lives.items() if life.closed[-1:] == ["dead"] and not life.live
        ]
        mine = [run_id for run_id in dead if run_id.startswith(f"{job_id}:")] or dead
        if mine:
            run_id = self._dice.choice(mine)
            self._witness.lives[run_id].redrives += 1
            await self._ask(run_id.rpartition(":")[0], {"run_id": run_id}, kind="redrive")

    async def _nonsense(self, job_id: str) -> None:
        self.asked.append(await self._ask(job_id, {"id": job_id, "schedule": "never", "target": 7}))

    async def _put(self, job_id: str) -> None:
        self.asked.append(await self._ask(job_id, self._known[job_id]))

    async def _ask(self, key: str, document: Document | None, *, kind: str | None = None) -> str:
        """Append a request; returns its origin."""
        dice, layout = self._dice, self._layout
        home = layout.partition_of(key)
        domain = "public" if home % 3 == 2 else "api"  # requests of two domains for one job have no order
        partition = dice.randrange(layout.partitions) if self._site.chance(120) else home
        at = TopicPartition(layout.name("requests", domain=domain), partition)
        headers = [] if kind is None else [("kind", kind.encode())]
        if self._site.chance(200):
            headers.append(("verdict", b"1"))
        record = Record(key.encode(), None if document is None else orjson.dumps(document), headers)
        if self._site.chance(100):
            return await self._in_a_transaction(at, record)
        offset = self._log.append(at, [record]).first_offset
        return f"requests.{domain}/{partition}/{offset}"

    async def _in_a_transaction(self, at: TopicPartition, record: Record) -> str:
        """A foreign service produces it in a transaction of its own, and takes its time; another attempt fails."""
        self._producers += 1
        for outcome in ("abort", "commit"):
            session = self._log.open_session(f"foreign-{self._producers}")
            offset = self._log.append(at, [record], session=session).first_offset
            await asyncio.sleep(self._dice.choice((0.01, 0.2, 2.0)))
            if outcome == "abort":
                self._log.abort(session)
            else:
                self._log.commit(session)
        return f"{self._layout.short(at.topic)}/{at.partition}/{offset}"

    def _definition(self, job_id: str) -> Document:
        dice = self._dice
        target: Document = dice.choice(
            (
                {"topic": {"name": REGISTERED}},
                {"topic": {"name": UNREGISTERED}},
                {"topic": {"name": SICKLY}},
                {"handler": dice.choice(HANDLERS)},
                {"handler": dice.choice(HANDLERS)},
                {"handler": dice.choice(HANDLERS)},
            )
        )
        document: Document = {
            "id": job_id,
            "schedule": self._schedule(job_id),
            "timing": "exact",
            "target": target,
            "misfire": dice.choice(("run_once", "run_once", "run_all", "skip")),
            "grace": dice.choice(("PT0.5S", "PT3S", "PT60S")),
            "overlap": dice.choice(("skip", "queue", "allow", "replace")),
            "retry": {"backoff": ["PT1S"], "max_attempts": dice.choice((1, 2, 4))},
            "payload": dice.randrange(1_000),
            "tenant": dice.choice(("acme", "bolt")) if not self._known.get(job_id) else self._known[job_id]["tenant"],
        }
        if "handler" in target:
            document |= {
                "lane": dice.choice(LANES),
                "lease": dice.choice(("PT3S", "PT5S")),
                "timeout": dice.choice(("PT4S", "PT20S")),
                "queue_deadline": dice.choice(("PT6S", "PT20S")),
                "guarantee": dice.choice(("at_least_once", "at_least_once", "at_most_once")),
                "priority": dice.randrange(10),
            }
            if self._site.chance(200):
                document["concurrency_key"] = "disk"
            if document["guarantee"] == "at_most_once":
                document["retry"] = {"max_attempts": 1}
        return document

    def _schedule(self, job_id: str) -> Document:
        dice, now_ms = self._dice, self._now_ms()
        match dice.randrange(4):
            case 0:
                return {"cron": f"*/{dice.choice((2, 3, 5, 10))} * * * * *", "seconds": True}
            case 1:
                earliest_ms = 1_000 if job_id in self._known else -2_000  # a job that has run does not go back
                return {"at": format_instant(now_ms + dice.randrange(earliest_ms, 20_000))}
            case _:
                return {"every": f"PT{dice.randrange(2, 9)}S", "anchor": format_instant(now_ms // 1_000 * 1_000)}
