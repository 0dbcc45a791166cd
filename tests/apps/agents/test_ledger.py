"""Usage in hopping windows, counted once although records come twice."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from noontide.apps.agents.ledger import ROW_JOBS_MAX, Changes, Ended, Ledger, ended_of
from noontide.core.instants import format_instant
from noontide.core.spread import MILLISECONDS
from noontide.records.agents_state import WINDOWS, RowKey, Tally, quantile_ms

MINUTE = 1_772_409_600_000 // 60_000  # a full hour
FIVE, HOUR, DAY = WINDOWS


def ended(offset: int, state: str = "succeeded", *, minute: int = MINUTE, partition: int = 0, **fields: Any) -> Ended:
    at = format_instant(minute * 60_000)
    execution = {
        "run_id": f"a:{offset}",
        "job_id": "a",
        "tenant": "t",
        "due": at,
        "ended_at": at,
        "state": state,
        **fields,
    }
    found = ended_of(partition, offset, orjson.dumps(execution))
    assert found is not None
    return found


class Table:
    """What the rows come to when they are written one after the other."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}

    def write(self, changes: Changes) -> None:
        for key, row in changes.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = orjson.loads(orjson.dumps(row))

    def runs_of_jobs(self, window: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for text, row in self.rows.items():
            key = RowKey.of(text)
            if key is not None and key.kind == "jobs" and key.window == window:
                for jobs in row["jobs"].values():
                    for job, tally in jobs.items():
                        found[job] = found.get(job, 0) + sum(Tally.of(tally).counts[:4])
        return found


def counts(ledger: Ledger, minute: int = MINUTE) -> list[int]:
    return ledger.usage(FIVE, minute)["t"].counts


def test_records_that_come_again_count_once() -> None:
    ledger, table = Ledger(), Table()
    table.write(ledger.count([ended(0), ended(1), ended(2, "dead")], now_minute=MINUTE))
    assert ledger.count([ended(1), ended(2, "dead")], now_minute=MINUTE) == {}
    table.write(
        ledger.count([ended(2, "dead"), ended(3, "cancelled"), ended(4, "skipped", count=7)], now_minute=MINUTE)
    )
    assert counts(ledger) == [2, 1, 1, 7, 0]
    assert table.runs_of_jobs("1h") == {"a": 11}
    ledger.count([ended(0, partition=1)], now_minute=MINUTE)
    assert counts(ledger)[0] == 3


def test_a_window_is_the_panes_it_covers() -> None:
    ledger = Ledger()
    for offset, minute in enumerate([MINUTE, MINUTE + 4, MINUTE + 5]):
        ledger.count([ended(offset, minute=minute)], now_minute=minute)
    assert [ledger.usage(window, MINUTE + 5)["t"].counts[0] for window in WINDOWS] == [2, 3, 3]
    assert [window.first_pane(MINUTE + 5) - MINUTE for window in WINDOWS] == [1, -50, -23 * 60]


def test_what_is_too_old_is_neither_counted_nor_kept() -> None:
    ledger, table = Ledger(), Table()
    table.write(ledger.count([ended(0), ended(1, minute=MINUTE - 2 * 24 * 60)], now_minute=MINUTE))
    assert sum(key.startswith("usage/") for key in table.rows) == 3
    table.write(ledger.count([ended(2, minute=MINUTE + 59)], now_minute=MINUTE + 59))
    assert sorted(key for key in table.rows if key.startswith("usage/5m/")) == [f"usage/5m/{MINUTE + 59:010}/0"]
    assert ledger.usage(DAY, MINUTE + 59)["t"].counts[0] == 2


def test_jobs_lie_in_rows_of_a_bounded_size() -> None:
    ledger, table = Ledger(), Table()
    batch = [ended(offset, job_id=f"j{offset}") for offset in range(2 * ROW_JOBS_MAX + 1)]
    table.write(ledger.count(batch, now_minute=MINUTE))
    rows = [row for key, row in table.rows.items() if key.startswith("jobs/5m/")]
    assert [sum(map(len, row["jobs"].values())) for row in rows] == [ROW_JOBS_MAX, ROW_JOBS_MAX, 1]
    assert table.runs_of_jobs("5m") == {f"j{offset}": 1 for offset in range(2 * ROW_JOBS_MAX + 1)}


@pytest.mark.parametrize("written", range(13))
def test_a_process_that_died_between_two_writes_goes_on_rightly(written: int) -> None:
    batch = [
        ended(offset, "dead" if offset % 3 else "succeeded", job_id=f"j{offset % 700}", late_ms=offset)
        for offset in range(1_500)
    ]
    whole, table = Table(), Table()
    whole.write(Ledger().count(batch, now_minute=MINUTE))
    table.write(Ledger().count(batch[:400], now_minute=MINUTE))
    ledger = Ledger()
    ledger.load(table.rows.items())
    changes = ledger.count(batch[300:1_200], now_minute=MINUTE)
    table.write(dict(list(changes.items())[:written]))  # then it is killed
    ledger = Ledger()
    ledger.load(table.rows.items())
    for start in range(200, 1_500, 500):
        table.write(ledger.count(batch[start : start + 500], now_minute=MINUTE))
    assert table.runs_of_jobs("5m") == whole.runs_of_jobs("5m")
    ledger.load(table.rows.items())
    assert counts(ledger) == [500, 1_000, 0, 0, 0]
    assert sum(ledger.usage(HOUR, MINUTE)["t"].late_ms.values()) == 1_500


def test_lateness_and_duration() -> None:
    start = format_instant(MINUTE * 60_000 - 1_500)
    one = ended(0, late_ms=2, started_at=start, attempts='[{"reason":"lease_lost"}]')
    assert (one.ran_ms, one.leases_lost) == (1_500, 1)
    ledger = Ledger()
    ledger.count([one, ended(1, late_ms=400)], now_minute=MINUTE)
    tally = ledger.usage(FIVE, MINUTE)["t"]
    assert (quantile_ms(tally.late_ms, 0.5), quantile_ms(tally.late_ms, 0.51)) == (2, 500)
    assert quantile_ms(tally.ran_ms, 0.99) == 2_000
    assert Tally.of(orjson.loads(orjson.dumps(tally.document()))).late_ms == tally.late_ms
    assert quantile_ms({len(MILLISECONDS): 1}, 0.5) == MILLISECONDS[-1]
    assert quantile_ms({}, 0.5) is None


@pytest.mark.parametrize(
    "value",
    [b"", b"null", b"[]", b'{"run_id": "a"}', b'{"run_id":"a","job_id":"a","tenant":"t","state":"dead","due":"soon"}',
     b'{"run_id":"a","job_id":"a","tenant":"t","state":"dead","due":"2026-02-30T00:00:00.000Z"}'],
)  # fmt: skip
def test_what_is_no_execution_is_passed_over(value: bytes) -> None:
    assert ended_of(0, 0, value) is None


def test_keys_of_rows() -> None:
    key = RowKey("jobs", "5m", MINUTE, 3, 7)
    assert key.text() == "jobs/5m/0029540160/3/0007"
    assert RowKey.of(key.text()) == key
    assert RowKey.of("usage/1h/0029540160/3") == RowKey("usage", "1h", MINUTE, 3)
    assert [RowKey.of(text) for text in ("health/jobs/a/b", "usage/1h/x/3", "jobs/5m/1/2", "")] == [None] * 4
