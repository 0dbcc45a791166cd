"""The transactional writer of one slot on the log in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum

from noontide.adapters.memory.faults import CommitFault
from noontide.adapters.memory.log import MemoryLog, Refused, Session
from noontide.ports.clock import BrokerTimeSource
from noontide.ports.record_log import Doubt, Outputs, Receipt, TopicPartition


class Stage(Enum):
    """Places in a commit, and before an opening, at which a process may wait, fail or die."""

    OPENING = "opening"
    BEGUN = "begun"
    """Nothing is written."""
    WRITTEN = "written"
    """All records are there; their transaction is open."""
    SETTLED = "settled"
    """Committed; the answer is on its way."""


async def _go_on(_stage: Stage) -> None:
    return


class MemorySlotLog:
    """`SlotLog` on a `MemoryLog`.

    between: awaited at each stage; by default nothing waits, so time limits are never reached. What it raises passes.
    """

    def __init__(
        self,
        log: MemoryLog,
        *,
        transactional_id: str,
        time_source: BrokerTimeSource | None = None,
        between: Callable[[Stage], Awaitable[None]] = _go_on,
    ) -> None:
        self._between = between
        self._log = log
        self._transactional_id = transactional_id
        self._time_source = time_source
        self._session: Session | None = None

    async def open(self) -> None:
        """See `SlotLog.open`."""
        self._session = None
        if self._log.faults.silent:
            raise Doubt("the log does not answer")
        await self._between(Stage.OPENING)
        self._session = self._log.open_session(self._transactional_id)

    async def commit(self, outputs: Outputs, *, timeout_ms: int) -> dict[TopicPartition, Receipt]:
        """See `SlotLog.commit`; an empty commit is a mistake of the caller."""
        assert timeout_ms > 0
        assert any(outputs.values()), "an empty transaction succeeds even when fenced: do not commit nothing"
        session, self._session = self._session, None
        if session is None:
            raise Doubt("the slot's writer is not open")
        if self._log.faults.silent:
            raise Doubt("the log does not answer")
        receipts = await self._transact(session, outputs)
        self._session = session
        return receipts

    async def close(self) -> None:
        """See `SlotLog.close`."""
        self._session = None

    async def _transact(self, session: Session, outputs: Outputs) -> dict[TopicPartition, Receipt]:
        sent_boot_ms = self._boot_ms()
        await self._between(Stage.BEGUN)
        receipts = self._write(session, outputs)
        await self._between(Stage.WRITTEN)
        fault = self._log.faults.take_commit_fault(self._transactional_id)
        if fault is not CommitFault.NO_EFFECT:
            self._log.commit(session)
        await self._between(Stage.SETTLED)
        if fault is not None:
            raise Doubt(fault.value)
        if self._time_source is not None:
            self._time_source.observe(
                appended_ms=max(receipt.appended_ms for receipt in receipts.values()),
                sent_boot_ms=sent_boot_ms,
                acknowledged_boot_ms=self._boot_ms(),
            )
        return receipts

    def _write(self, session: Session, outputs: Outputs) -> dict[TopicPartition, Receipt]:
        """Append everything that is not refused; one refusal aborts the rest, which then has burnt offsets."""
        receipts: dict[TopicPartition, Receipt] = {}
        refusals: dict[TopicPartition, Refused] = {}
        for partition, records in outputs.items():
            if not records:
                continue
            try:
                receipts[partition] = self._log.append(partition, records, session=session)
            except Refused as refused:
                refusals[partition] = refused
        if refusals:
            self._log.abort(session)
            final = {partition for partition, refused in refusals.items() if not refused.retriable}
            reason = next(iter(refusals.values())).reason
            raise Doubt(f"records were refused: {reason}", suspects=frozenset(final or refusals), refused=bool(final))
        return receipts

    def _boot_ms(self) -> float:
        return 0.0 if self._time_source is None else self._time_source.boot_ms()
