"""The copy of the recent executions: their order, what a later end replaces, what is forgotten, what cannot be read."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from noontide.adapters.memory.index import MemoryIndex
from noontide.apps.port.recents import Recents, Source
from noontide.core.instants import format_instant
from noontide.ports.history import Place
from noontide.ports.record_log import Incoming

HOUR_MS = 3_600_000
NOON_MS = 1_772_366_400_000
SLOT = 1


class Copy:
    """A copy and the topic it is made of. retention_ms: what is kept."""

    def __init__(self, retention_ms: int = 7 * 24 * HOUR_MS) -> None:
        source = Source(
            topic="executions",
            owned=lambda: frozenset({SLOT}),
            follow=cast("Any", None),
            ends=lambda partitions: dict.fromkeys(partitions, 1 << 40),
        )
        self.index = MemoryIndex()
        self.recents = Recents(self.index, source, per_second_max=1_000, retention_ms=retention_ms)
        self.recents.begin(frozenset({SLOT}))
        self._offset = 0

    def add(self, due_ms: int, *, run: str = "", at_ms: int | None = None, **more: object) -> str:
        """A line of job "a"; gives its run id."""
        run_id = f"a:{run or due_ms}"
        execution = {"run_id": run_id, "job_id": "a", "tenant": "t", "due": format_instant(due_ms), **more}
        self.write(orjson.dumps(execution), at_ms=due_ms if at_ms is None else at_ms)
        return run_id

    def write(self, value: bytes, *, at_ms: int = NOON_MS) -> None:
        self.recents.copy([Incoming("executions", SLOT, self._offset, at_ms, b"key", value, ())])
        self._offset += 2  # a marker lies between

    def listed(self, **asked: Any) -> list[str]:
        return [str(orjson.loads(each.execution)["run_id"]) for each in self.lines(**asked)]

    def lines(self, *, limit: int = 100, **asked: Any) -> list[Any]:
        return self.recents.of_job(SLOT, "a", limit=limit, **asked)


def test_lines_are_by_nominal_time_whenever_they_were_written() -> None:
    copy = Copy()
    second, first = copy.add(NOON_MS), copy.add(NOON_MS - HOUR_MS)
    third = copy.add(NOON_MS + 1)
    before_1970 = copy.add(-5, at_ms=NOON_MS)
    assert copy.listed() == [third, second, first, before_1970]
    assert copy.listed(limit=2) == [third, second]


def test_of_one_instant_the_greater_run_id_comes_first_also_when_it_is_longer() -> None:
    copy = Copy()
    for run in ("1", "1~2", "10", "2"):
        copy.add(NOON_MS, run=run)
    ids = ["a:2", "a:1~2", "a:10", "a:1"]
    assert sorted(ids, reverse=True) == ids
    assert copy.listed() == ids
    for place, run_id in enumerate(ids):
        assert copy.listed(after=Place(NOON_MS, run_id)) == ids[place + 1 :]


def test_a_run_that_ends_again_keeps_its_place_and_shows_its_last_end() -> None:
    copy = Copy()
    old = copy.add(NOON_MS - HOUR_MS, state="dead")
    new = copy.add(NOON_MS, state="succeeded")
    copy.add(NOON_MS - HOUR_MS, state="succeeded", at_ms=NOON_MS + HOUR_MS)
    assert copy.listed() == [new, old]
    assert [orjson.loads(each.execution)["state"] for each in copy.lines()] == ["succeeded", "succeeded"]
    ends = copy.recents.of_run(SLOT, old, limit=10)
    assert [orjson.loads(each.execution)["state"] for each in ends] == ["succeeded", "dead"]


def test_a_range_of_time_and_the_decisions_that_reach_into_it() -> None:
    copy = Copy()
    times = [NOON_MS + number * HOUR_MS for number in range(5)]
    runs = [copy.add(each) for each in times]
    reaching = copy.add(NOON_MS - HOUR_MS, state="coalesced", until=format_instant(times[2]))
    copy.add(NOON_MS - 2 * HOUR_MS, state="coalesced", until=format_instant(times[2] - 1))
    inside = Place(times[4], "")
    assert copy.listed(after=inside, since_ms=times[2]) == [runs[3], runs[2], reaching]
    assert copy.listed(after=inside, since_ms=times[2] + 1) == [runs[3]]
    assert copy.listed(after=inside, since_ms=NOON_MS - HOUR_MS)[-1] == "a:" + str(NOON_MS - 2 * HOUR_MS)


def test_only_what_somebody_may_see() -> None:
    copy = Copy()
    theirs = [copy.add(NOON_MS + number, tenant="u") for number in range(5)]
    mine = copy.add(NOON_MS - 1)
    assert copy.listed(tenants=["t"], limit=1) == [mine]
    assert copy.listed(tenants=["u"], limit=2) == theirs[:2:-1]
    assert copy.listed(tenants=[]) == []


def test_what_is_forgotten_is_gone_from_all_rows_but_a_later_end_stays() -> None:
    copy = Copy(retention_ms=HOUR_MS)
    assert copy.recents.complete_since_ms(SLOT) is None
    old = copy.add(NOON_MS - 10 * HOUR_MS, at_ms=NOON_MS - 10 * HOUR_MS, state="dead")
    gone = copy.add(NOON_MS - 9 * HOUR_MS, at_ms=NOON_MS - 9 * HOUR_MS, until=format_instant(NOON_MS))
    assert copy.recents.complete_since_ms(SLOT) == NOON_MS - 10 * HOUR_MS
    again = copy.add(NOON_MS - 10 * HOUR_MS, at_ms=NOON_MS - 1, state="succeeded")
    for number in range(250):  # it forgets now and then
        copy.add(NOON_MS + number, at_ms=NOON_MS + number)
    assert again == old
    assert copy.listed(limit=1_000)[-1] == old
    assert len(copy.listed(limit=1_000)) == 251
    assert gone not in copy.listed(since_ms=NOON_MS, limit=1_000)
    assert copy.recents.of_run(SLOT, gone, limit=1) == []
    assert [orjson.loads(each.execution)["state"] for each in copy.recents.of_run(SLOT, old, limit=9)] == ["succeeded"]
    assert copy.recents.complete_since_ms(SLOT) == NOON_MS - 1
    assert b"a:%d" % (NOON_MS - 9 * HOUR_MS) not in b"".join(copy.index.surviving_rows())


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b"null", b"{}", b'{"run_id": "a:1"}', b'{"run_id": "a:1", "due": "soon"}', b'{"due": 5}',
     b'{"run_id": "a:1", "due": "2026-03-01T00:00:00.000Z", "until": []}'],
)  # fmt: skip
def test_a_line_that_cannot_be_read_stops_nothing(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    copy = Copy()
    first = copy.add(NOON_MS)
    copy.write(value)
    second = copy.add(NOON_MS + 1)
    assert copy.listed() == [second, first]
    assert copy.recents.position(SLOT) == 5
    assert "is none" in caplog.text
