"""Logs that earlier versions wrote are restored, and the work goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from noontide.core.run import RunState
from noontide.records.topics import load_catalogue
from noontide.testing.golden import busy_stage, facts, live_states, load
from noontide.testing.memory_stage import MemoryStage

GOLDEN = sorted(Path(__file__).parent.glob("*.jsonl"))
KINDS = set(load_catalogue()["state"].by_key)


def kinds_on_state(stage: MemoryStage) -> set[str]:
    keys = (record.key or b"" for record in stage.records(stage.layout.name("state")))
    return {key.partition(b"/")[0].decode() for key in keys} & KINDS


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
async def test_what_an_earlier_version_wrote_is_understood(path: Path) -> None:
    stage, known = load(path)
    async with stage:
        for slot in stage.slots:
            assert slot.restored is not None
            assert slot.restored.unreadable == ()
    assert known["jobs"]
    before, after = known["cursors"], facts(stage)["cursors"]
    assert after.keys() == before.keys()
    assert not [name for name, state in after.items() if state == "quarantined"]
    assert set(facts(stage)["dead"]) == set(known["dead"]) != set()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
async def test_the_work_goes_on_where_it_was(path: Path) -> None:
    stage, known = load(path)
    async with stage:
        await stage.advance(125_000)
        sends = [run_id for run_id, (state, _) in known["live"].items() if state == "queued"]
        closed = {str(line["run_id"]): line["state"] for line in stage.executions()}
        assert sends
        assert [run_id for run_id in sends if run_id.startswith(("waits", "kept")) and run_id not in closed] == []
        assert len(stage.run_ids("orders")) > 5
        for run_id, (_, token) in known["live"].items():
            run = stage.leases().get(run_id)
            assert run is None or run.token >= token
        assert not [name for name, state in facts(stage)["cursors"].items() if state == "quarantined"]
        requests = stage.put({"id": "new", "schedule": {"every": "PT10S"}, "target": {"topic": {"name": "orders"}}})
        await stage.advance(60_000)
        assert requests >= 0
        assert "new" in stage.jobs()


def test_every_kind_of_state_was_recorded_once() -> None:
    """A new kind needs a log that holds it: `python -m noontide.testing.golden record`."""
    recorded = [kinds_on_state(load(path)[0]) for path in GOLDEN]
    assert set().union(*recorded) == KINDS


async def test_the_recorded_log_holds_all_kinds_of_records() -> None:
    stage = await busy_stage()
    known = facts(stage)
    assert live_states(known) >= {RunState.PENDING, RunState.QUEUED, RunState.RUNNING, RunState.RETRY_WAIT}
    assert set(known["cursors"].values()) >= {"active", "paused", "completed", "deleted"}
    assert kinds_on_state(stage) == KINDS
    runs = stage.leases().values()
    assert any(run.cancel for run in runs)
    assert any(run.waits_for for run in runs)
    assert any(run.kept for run in runs)
    assert any(run.permits for run in runs)
    assert any(run.awaits for run in runs)
