"""Where streams go on once the tables are read."""

from __future__ import annotations

import pytest
from faust.transport.drivers.aiokafka import Consumer
from faust.types import TP

from noontide.apps.agents.transport import _BatchConsumer

READ, NEW, CUT, TABLE = TP("executions", 0), TP("executions", 1), TP("alerts", 2), TP("agents-state", 1)
COMMITTED = {READ: 7, NEW: None, CUT: 0, TABLE: None}


async def test_where_nothing_was_committed_streams_begin_with_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    sought: dict[TP, int] = {}

    async def seek_to_committed(_consumer: object) -> dict[TP, int | None]:
        return dict(COMMITTED)

    async def earliest_offsets(_consumer: object, *places: TP) -> dict[TP, int]:
        return {place: 40 if place == CUT else 0 for place in places}

    async def seek(_consumer: object, place: TP, offset: int) -> None:
        sought[place] = offset

    monkeypatch.setattr(Consumer, "seek_to_committed", seek_to_committed)
    monkeypatch.setattr(Consumer, "earliest_offsets", earliest_offsets)
    monkeypatch.setattr(Consumer, "_seek", seek)
    monkeypatch.setattr(Consumer, "_is_changelog_tp", lambda _consumer, place: place == TABLE)
    consumer = _BatchConsumer.__new__(_BatchConsumer)
    assert await consumer.seek_to_committed() == COMMITTED
    assert sought == {NEW: 0, CUT: 40}
