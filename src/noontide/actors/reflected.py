"""Which records of its source topics a slot's index reflects, from the receipts of its commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from noontide.actors.effects import Names
from noontide.ports.record_log import Receipt, TopicPartition
from noontide.records import rows


class Reflected:
    """Offsets by source partition, and how many records were written anywhere."""

    def __init__(self, names: Names) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.records = 0
        self._names = names
        self._first = names.layout.partitions_of(names.slot)[0]

    def note(self, receipts: Mapping[TopicPartition, Receipt]) -> Iterator[tuple[bytes, bytes]]:
        """The rows that say so, for the batch that makes it true.

        Only an owner commits, so a commit proves that the index lacks nothing of what came before it.
        """
        for written, receipt in receipts.items():
            self.records += receipt.next_offset - receipt.first_offset
            key = self._offset_key(written)
            if key is not None:
                self.offsets[written] = receipt.next_offset
                yield key, rows.encode_offset(receipt.next_offset, receipt.appended_ms)
        if receipts:
            complete_ms = max(receipt.appended_ms for receipt in receipts.values())
            yield rows.meta_key(self._first, rows.COMPLETE), rows.encode_complete(complete_ms)

    def _offset_key(self, written: TopicPartition) -> bytes | None:
        names = self._names
        if written.topic == names.jobs:
            return rows.offset_key(written.partition, rows.JOBS)
        if written == names.state:
            return rows.offset_key(self._first, rows.STATE)
        if written == names.leases:
            return rows.offset_key(self._first, rows.LEASES)
        return None
