"""The quota of exact starts: jobs that insist on their minute are counted per tenant, in one place, when they are put.

    definition ──> held at its owner ──> reserve ──> the quota's home: counted, or full
                        accepted, or refused with the nearest free minute  <── reserved

The home of a tenant's quota is the slot of its name. Both sides keep what they know in their transactions, so a job
that counts is counted once, whatever crashes. Only definitions that recur with exact timing, of tenants with a quota,
go this way; nobody else's waits for anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from noontide.actors.effects import Effects, Scene
from noontide.actors.mailbox import Message, reading
from noontide.actors.partition import Partition, Work
from noontide.actors.quota import say
from noontide.actors.request_input import Input
from noontide.actors.timelines import loaded
from noontide.core.exact_quota import SCHEDULES_MAX, ExactBook, Full, Insisting, insisting
from noontide.core.instants import format_instant
from noontide.records import exact_starts as records
from noontide.records import rows
from noontide.records.config import ConfigView
from noontide.records.job_row import decode_job_row
from noontide.records.limit_book import EXACT_STARTS
from noontide.records.rejected import parse_origin
from noontide.records.signals import Insist, Reserve, Reserved
from noontide.records.state import HELD
from noontide.records.topics import Layout


@dataclass(slots=True, kw_only=True)
class ExactWork:
    """What is decided in one cycle: asks of other slots, answers for this one, and tenants whose quota is gone."""

    messages: list[Message] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    config_offset: int = -1

    def __bool__(self) -> bool:
        return bool(self.messages or self.dropped)


class ExactStarts:
    """The quotas at home in one slot, and the definitions of its jobs that wait for an answer."""

    def __init__(self, layout: Layout, partitions: Mapping[int, Partition]) -> None:
        self._layout = layout
        self._partitions = partitions
        self._books: dict[str, ExactBook] = {}
        self._held: dict[tuple[str, str], Input] = {}
        self._seen_config = -1

    # --- gather

    def collect(self, messages: Iterable[Message], config: ConfigView) -> ExactWork:
        """Take what is about quotas; after a change of the configuration forget those that are gone."""
        kinds = (Reserve, Reserved, Insist)
        work = ExactWork(messages=[each for each in messages if isinstance(each.signal, kinds)])
        work.config_offset = config.offset
        if config.offset != self._seen_config:
            work.dropped = [tenant for tenant in self._books if tenant not in config.limits.exact_starts]
        return work

    def wanted(self, work: ExactWork) -> Iterator[bytes]:
        """Keys of the rows that deciding reads: those of definitions that are answered."""
        for message in work.messages:
            if isinstance(answer := message.signal, Reserved):
                item = self._held.get((answer.job_id, answer.request))
                if item is not None:
                    yield from self._home(answer.job_id).wanted(Work(inputs=[item]))

    # --- decide

    def decide(self, work: ExactWork, scene: Scene, set_aside: Iterable[object] = ()) -> None:
        """Count, or refuse, and go on with what was answered. Raises Misread."""
        for tenant in work.dropped:
            for job_id in self._books[tenant].jobs:
                self._put(tenant, job_id, None, scene)
        for message in work.messages:
            if message.source in set_aside:
                continue
            with reading(message.source):
                match message.signal:
                    case Reserve() as asked:
                        self._reserve(asked, scene)
                    case Insist() as said:
                        counts = Insisting(said.schedule, said.until) if said.schedule else None
                        if said.tenant in scene.world.config.limits.exact_starts:
                            self._put(said.tenant, said.job_id, counts, scene)
                    case Reserved() as answer:
                        self._answered(answer, scene)

    def _reserve(self, asked: Reserve, scene: Scene) -> None:
        quota = scene.world.config.limits.exact_starts.get(asked.tenant)
        problem = "" if quota is None else self._problem(asked, quota, scene)
        if quota is not None and not problem:
            self._put(asked.tenant, asked.job_id, Insisting(asked.schedule, asked.until), scene)
        owner = self._layout.slot_of(self._layout.partition_of(asked.job_id))
        scene.effects.signal(owner, Reserved(asked.tenant, asked.job_id, asked.request, problem))

    def _problem(self, asked: Reserve, quota: int, scene: Scene) -> str:
        """Why a definition is one too many; empty when it is not."""
        now_ms, book = scene.world.now_ms, self._books.get(asked.tenant, ExactBook())
        for job_id in book.over(now_ms):
            self._put(asked.tenant, job_id, None, scene)
        changes = {job_id: each for (tenant, job_id), each in scene.effects.exact.items() if tenant == asked.tenant}
        if not book.has_room_for(asked.schedule):
            return f"tenant {asked.tenant!r} has {SCHEDULES_MAX} different schedules with exact timing already"
        full = book.judge(asked.job_id, asked.schedule, quota=quota, after_ms=now_ms, changes=changes)
        return "" if full is None else _words(asked.tenant, quota, full)

    def _put(self, tenant: str, job_id: str, counts: Insisting | None, scene: Scene) -> None:
        scene.effects.exact[tenant, job_id] = counts
        value = None if counts is None else records.encode_exact(counts)
        scene.effects.put_note(records.exact_key(tenant, job_id), value)

    def _answered(self, answer: Reserved, scene: Scene) -> None:
        """The quota has room or not: the definition is judged anew, with that known."""
        item = self._held.get((answer.job_id, answer.request))
        if item is None:
            return
        effects, partition = scene.effects, self._home(answer.job_id)
        effects.held[answer.job_id, answer.request] = None
        effects.put_note(records.held_key(answer.job_id, answer.request), None)
        partition.admit(item._replace(reserved=answer.problem), scene)
        if answer.problem:
            return
        row = effects.read(rows.job_key(partition.number, answer.job_id.encode()))
        now = None if row is None else decode_job_row(row)
        if now is None or now.etag != item.origin.etag:  # it was refused for another reason: what is in force counts
            tenant = answer.tenant
            counts = None if now is None or now.tenant != tenant else insisting(loaded(now.document))
            say(tenant, answer.job_id, counts, scene)

    def _home(self, job_id: str) -> Partition:
        return self._partitions[self._layout.partition_of(job_id)]

    # --- apply

    def apply(self, work: ExactWork, effects: Effects) -> None:
        """Take over what the commit made true."""
        if work.config_offset >= 0:
            self._seen_config = work.config_offset
        for (tenant, job_id), counts in effects.exact.items():
            self._books.setdefault(tenant, ExactBook()).put(job_id, counts)
        for tenant in work.dropped:
            self._books.pop(tenant, None)
        for at, item in effects.held.items():
            if item is None:
                self._held.pop(at, None)
            else:
                self._held[at] = item

    def load_note(self, key: bytes, value: bytes) -> None:
        """What an earlier owner knew."""
        if key.startswith(HELD):
            job_id, named = records.held_key_parts(key)
            text, headers, appended_ms = records.decode_held(value)
            origin = parse_origin(named)
            self._held[job_id, named] = Input(
                origin, origin, appended_ms, job_id.encode(), text, headers, forwarded=True
            )
        else:
            tenant, job_id = records.exact_key_parts(key)
            self._books.setdefault(tenant, ExactBook()).put(job_id, records.decode_exact(value))


def _words(tenant: str, quota: int, full: Full) -> str:
    free = "none within 12 hours" if full.free_ms is None else format_instant(full.free_ms)[:16] + "Z"
    minute = format_instant(full.minute_ms)[:16] + "Z"
    return (
        f"the quota of tenant {tenant!r} is full at {minute}: {quota} jobs insist on that minute ({EXACT_STARTS}); "
        f'the nearest free minute is {free}, and "timing": "relaxed" needs none'
    )
