"""Golden logs: what a version wrote, kept so that every later one is shown to read it.

    python -m noontide.testing.golden record tests/golden/0.1.jsonl

The first line says what is in the log; each other line is a record of `jobs`, `state`, `leases` or `config`.
"""

from __future__ import annotations

import asyncio
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Final

import orjson

from noontide.core.instants import format_instant
from noontide.core.run import RunState
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records import state
from noontide.records.topics import Layout
from noontide.records.worker_events import End, Frame, Outcome
from noontide.testing.builders import after_completion, cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

TOPICS: Final = ("config", "jobs", "state", "leases")
LAYOUT: Final = Layout(partitions=4, slots=2)
WORKER: Final = "golden-worker"
HOUR_MS: Final = 3_600_000
Json = dict[str, Any]


def facts(stage: MemoryStage) -> Json:
    """What a log says, by meaning: states of jobs, live runs, dead runs."""
    latest = {record.key or b"": record.value for record in stage.records(stage.layout.name("state"))}
    cursors = {
        key[len(state.CURSOR) :].decode(): state.decode_cursor(value).state.value
        for key, value in latest.items()
        if key.startswith(state.CURSOR) and value is not None
    }
    dead = [key[len(state.DEAD) :].decode() for key, value in latest.items() if key.startswith(state.DEAD) and value]
    return {
        "jobs": sorted(stage.jobs()),
        "cursors": dict(sorted(cursors.items())),
        "live": {run_id: [run.state.value, run.token] for run_id, run in sorted(stage.leases().items())},
        "dead": sorted(dead),
    }


async def busy_stage() -> MemoryStage:
    """A stage whose log holds all kinds of records."""
    stage = MemoryStage(layout=LAYOUT)
    stage.register("orders")
    stage.create_topic("elsewhere")
    stage.configure("calendar/days", {"dates": ["2026-12-25"]})
    stage.configure("lane/media", {})
    stage.configure("tenant/acme", {"concurrency_max": 1})
    stage.holds_sends = True
    async with stage:
        _define(stage)
        _tie(stage)
        await stage.advance(21_000)
        await _work(stage)
        stage.sicken("orders")
        stage.delete("deleted")
        stage.put(job("kept", every("PT10S"), to="elsewhere", payload=2, overlap="allow"), verdict="1")
        stage.trigger("paused", payload={"by": "hand"})
        stage.cancel("cancelled")
        await stage.advance(12_000)
    return stage


def _handler(name: str, schedule: Json | None, **fields: object) -> Json:
    return {**job(name, schedule), "target": {"handler": name}, **fields}


def _define(stage: MemoryStage) -> None:
    stage.put(job("interval", every("PT10S")))
    stage.put(job("waits", every("PT10S"), to="elsewhere", overlap="queue"))
    stage.put(job("cron", cron("*/5 * * * *"), timing="relaxed", timezone="Europe/Berlin"))
    stage.put(job("calendar", cron("0 6 * * *"), calendar={"exclude": ["days"]}))
    stage.put(job("once", once(START_MS + 1_000)))
    stage.put(job("later", once(START_MS + 86_400_000)))
    stage.put(job("follows", after_completion("PT7S"), to="elsewhere"))
    stage.put(job("paused", every("PT10S"), paused=True))
    stage.put(job("deleted", every("PT10S")))
    stage.put(job("kept", every("PT10S"), to="elsewhere", payload=1, overlap="allow"))
    stage.put(job("chain", None, after=["interval"]))
    for name in ("running", "fails", "dies", "cancelled", "offered"):
        retry = {"backoff": ["PT1H"], "max_attempts": 2}
        stage.put(_handler(name, once(START_MS + 2_000), retry=retry, pause_after_failures=3))
    for number in range(2):
        stage.put(_handler(f"limited-{number}", once(START_MS + 2_000), tenant="acme", concurrency_key="disk"))


def _tie(stage: MemoryStage) -> None:
    """What binds jobs together, or to a quota: each leaves facts of its own."""
    stage.configure("target/rated", {"handler": "rated", "starts_per_second_max": 0.001})
    stage.configure("tenant/exacting", {"exact_starts_per_minute_max": 1})
    for number in range(2):
        stage.put(_handler(f"rated-{number}", once(START_MS + 2_000)) | {"target": {"handler": "rated"}})
        exact = job(f"exact-{number}", cron("0 9 * * *"), tenant="exacting", timing="exact")
        stage.put(exact, verdict="1", idempotency_key=f"key-{number}")
    stage.put(job("gathers", None, after=["interval", "later"]))
    stage.put(_handler("root", every("PT1H")))
    stage.put(_handler("leaf", None, after=["root"]))
    stage.trigger("root", due="2026-03-01T00:00:01Z", members=["root", "leaf"])
    past = {"from": format_instant(START_MS - 5 * HOUR_MS), "to": format_instant(START_MS)}
    stage.request("root", orjson.dumps(past), headers={"kind": "backfill", "verdict": "1"})


async def _work(stage: MemoryStage) -> None:
    """A worker takes some of the runs: one goes on, one failed, one is dead, one is to be cancelled."""
    due = "20260301T000002Z"
    for slot in range(LAYOUT.slots):
        claims = [(f"{name}:{due}", 1) for name in ("running", "fails", "dies", "cancelled")]
        ends = [
            End(run_id=f"fails:{due}", token=1, outcome=Outcome.FAILED, error="it failed"),
            End(run_id=f"dies:{due}", token=1, outcome=Outcome.FAILED, error="it died", permanent=True),
        ]
        stage.say(Frame(worker=WORKER, claims=claims), slot=slot)
        await stage.run_until_idle()
        stage.say(Frame(worker=WORKER, ends=ends), slot=slot)
    await stage.run_until_idle()


def record(path: Path, version: str) -> None:
    """Record the log of this version."""
    stage = asyncio.run(busy_stage())
    lines: list[Json] = [{"version": version, "at": stage.clock.now_ms(), "facts": facts(stage)}]
    for topic in TOPICS:
        lines += [_line(topic, each) for each in stage.records(stage.layout.name(topic))]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def _line(topic: str, each: Incoming) -> Json:
    return {
        "topic": topic,
        "partition": each.partition,
        "key": (each.key or b"").decode(),
        "value": None if each.value is None else b64encode(each.value).decode(),
        "headers": [[name, b64encode(value).decode()] for name, value in each.headers],
    }


def load(path: Path) -> tuple[MemoryStage, Json]:
    """A stage over the recorded log, not entered yet, and the facts it was recorded with."""
    first, *lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    stage = MemoryStage(layout=LAYOUT, start_ms=first["at"])
    stage.create_topic("orders")
    stage.create_topic("elsewhere")
    consumed: dict[TopicPartition, int] = {}
    for line in lines:
        key, value = line["key"].encode(), None if line["value"] is None else b64decode(line["value"])
        headers = [(name, b64decode(text)) for name, text in line["headers"]]
        at = TopicPartition(stage.layout.name(line["topic"]), line["partition"])
        stage.log.append(at, [Record(key, value, headers)])
        if key.startswith(state.POSITION) and value is not None:
            consumed |= _consumed(
                stage.layout, key[len(state.POSITION) :].decode(), state.decode_position(value).inputs
            )
    for at, offset in consumed.items():  # what was consumed is gone, its offsets are not used again
        stage.log.append(at, [Record(b"gone", b"gone")] * offset)
        stage.log.drop_before(at, offset)
    return stage, first["facts"]


def _consumed(layout: Layout, owner: str, inputs: dict[str, int]) -> dict[TopicPartition, int]:
    found = {}
    for name, offset in inputs.items():
        topic, _, partition = name.partition("/")
        number = int(partition or owner.removeprefix("slot-"))
        found[TopicPartition(layout.prefix + topic, number)] = offset
    return found


def live_states(known: Json) -> set[RunState]:
    """States of live runs that a golden log holds."""
    return {RunState(run_state) for run_state, _ in known["live"].values()}


if __name__ == "__main__":
    record(Path(sys.argv[2]), Path(sys.argv[2]).stem)
