"""`bench api`: creates, reads and batches over HTTP, with one API node, one scheduler and one broker on this machine.

An answer to a create counts when it is 201; what was acknowledged is then looked for on `jobs`, and each hundredth job
is read back at once, before anything else is sent on its connection.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from noontide.adapters.http.line import HttpLine, LineBroken
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.testing.bench.measure import Costs, Meter
from noontide.testing.bench.stage import TARGET, BenchError, Stage, set_stage

ANSWER_S: Final = 30.0
START_S: Final = 30.0
IDLE_MAX_S: Final = 3.0
"""A connection that was idle for longer is made anew: the server closes those of five seconds."""
WARM_S: Final = 10.0
"""Creates before anything is measured: so long the broker's code is still being compiled."""
READ_BACK_EVERY: Final = 100
BATCH_LINES: Final = 5_000
_URL: Final = re.compile(r"API at (http://\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """seconds: of each part. connections: that ask at once. rate: creates per second where their time is measured."""

    seconds: float = 10.0
    connections: int = 256
    rate: int = 500
    batches: int = 5


@dataclass(slots=True)
class _Tally:
    acknowledged: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    failed: int = 0
    not_read_back: int = 0


def run_api_bench(options: ApiOptions) -> dict[str, object]:
    """All parts one after another; `missing` counts acknowledged jobs that are not on `jobs`."""
    secret = secrets.token_urlsafe()
    os.environ["NOONTIDE_INTERNAL_SECRET"] = secret
    with set_stage(extra=("--internal-host", "127.0.0.1")) as stage, api_of(stage) as (url, meter):
        import uvloop

        costs = stage.costs()
        figures = uvloop.run(_measured(url, options, stage, costs, meter))
        return {**figures, "warnings": len(stage.scheduler.warnings())}


@contextmanager
def api_of(stage: Stage) -> Iterator[tuple[str, Meter]]:
    """`noontide api` with its shipped defaults; its URL and its costs."""
    command = [sys.executable, "-m", "noontide.apps.cli.main", "api", "--bootstrap", stage.kafka.bootstrap]
    log_path = stage.folder / "api.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen([*command, "--port", "0", "--no-access"], stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + START_S
        while (found := _URL.search(log_path.read_text())) is None:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise BenchError(f"the API does not start:\n{log_path.read_text()[-2_000:]}")
            stage.scheduler.pause(0.05)
        yield found[1], Meter(process.pid)
    finally:
        process.terminate()
        process.wait(START_S)


async def _measured(url: str, options: ApiOptions, stage: Stage, costs: Costs, meter: Meter) -> dict[str, object]:
    await _flat_out(url, options.connections, WARM_S, _Tally(), _create)
    creates, timed, reads = _Tally(), _Tally(), _Tally()
    costs.reset()
    meter.reset()
    create_s = await _flat_out(url, options.connections, options.seconds, creates, _create)
    spent = {**costs.cores(), "cpu_api": meter.cores()}
    await _at_rate(url, options, timed)
    made = creates.acknowledged

    async def read(line: HttpLine, tally: _Tally) -> None:
        job_id = made[secrets.randbelow(len(made))]
        await line.request("GET", f"/v1/jobs/{job_id}", timeout_s=ANSWER_S)
        tally.acknowledged.append(job_id)

    read_s = await _flat_out(url, options.connections, options.seconds, reads, read)
    batch_ids, batch_s = await _batches(url, options)
    missing = len({*made, *timed.acknowledged, *batch_ids} - _on_jobs(stage))
    return {
        "create_per_second": round(len(made) / create_s),
        "create_p99_ms": _percentile_ms(timed.took_s, 0.99),
        "create_p50_ms": _percentile_ms(timed.took_s, 0.5),
        "create_flat_out_p99_ms": _percentile_ms(creates.took_s, 0.99),
        "read_per_second": round(len(reads.acknowledged) / read_s),
        "batch_per_second": round(len(batch_ids) / batch_s),
        "failed": creates.failed + timed.failed + reads.failed,
        "not_read_back": creates.not_read_back + timed.not_read_back,
        "missing": missing,
        "rate": options.rate,
        "connections": options.connections,
        **spent,
    }


async def _create(line: HttpLine, tally: _Tally) -> None:
    began_s = time.perf_counter()
    answer = orjson.loads(await line.request("POST", "/v1/jobs", _definition(), timeout_s=ANSWER_S))
    tally.took_s.append(time.perf_counter() - began_s)
    tally.acknowledged.append(answer["id"])
    if len(tally.acknowledged) % READ_BACK_EVERY == 0:
        await _read_back(line, tally, answer)


async def _read_back(line: HttpLine, tally: _Tally, answer: dict[str, Any]) -> None:
    try:
        found = orjson.loads(await line.request("GET", f"/v1/jobs/{answer['id']}", timeout_s=ANSWER_S))
    except LineBroken:
        found = None
    tally.not_read_back += found != answer


async def _flat_out(url: str, connections: int, seconds: float, tally: _Tally, ask: Any) -> float:
    """As many as there can be, each connection one after another; gives how long it took."""
    until_s = time.perf_counter() + seconds

    async def repeat() -> None:
        line = HttpLine(url, ("Content-Type: application/json",))
        while time.perf_counter() < until_s:
            try:
                await ask(line, tally)
            except LineBroken:
                tally.failed += 1
        line.close()

    began_s = time.perf_counter()
    await asyncio.gather(*(repeat() for _ in range(connections)))
    return time.perf_counter() - began_s


async def _at_rate(url: str, options: ApiOptions, tally: _Tally) -> None:
    """Creates at fixed moments, whether or not those before are answered; times count from those moments."""
    free = list[tuple[HttpLine, float]]()
    began_s, under_way = time.perf_counter(), set[asyncio.Task[None]]()

    async def once(at_s: float) -> None:
        line, idle_since_s = free.pop() if free else (HttpLine(url, ("Content-Type: application/json",)), at_s)
        if at_s - idle_since_s > IDLE_MAX_S:
            line.close()
        try:
            answer = orjson.loads(await line.request("POST", "/v1/jobs", _definition(), timeout_s=ANSWER_S))
            tally.took_s.append(time.perf_counter() - at_s)
            tally.acknowledged.append(answer["id"])
            free.append((line, time.perf_counter()))
        except LineBroken:
            tally.failed += 1

    for number in range(int(options.rate * options.seconds)):
        at_s = began_s + number / options.rate
        await asyncio.sleep(max(0.0, at_s - time.perf_counter()))
        task = asyncio.create_task(once(at_s))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    while under_way:
        await asyncio.wait(set(under_way))
    for line, _ in free:
        line.close()


async def _batches(url: str, options: ApiOptions) -> tuple[list[str], float]:
    """Batches one after another; the ids that were accepted, and how long it took."""
    line = HttpLine(url, ("Content-Type: application/x-ndjson",))
    bodies = [b"\n".join(_definition() for _ in range(BATCH_LINES)) for _ in range(options.batches)]
    began_s, accepted = time.perf_counter(), list[str]()
    for body in bodies:
        answer = await line.request("POST", "/v1/jobs:batch", body, timeout_s=120)
        verdicts = map(orjson.loads, answer.splitlines())
        accepted += [verdict["id"] for verdict in verdicts if verdict["status"] == 201]
    took_s = time.perf_counter() - began_s
    line.close()
    return accepted, took_s


def _definition() -> bytes:
    """A one-off far away, with a payload of a few hundred bytes."""
    return b'{"run_at":"2090-01-01T00:00:00Z","target":"kafka://%s","payload":{"order":%d,"text":"%s"}}' % (
        TARGET.encode(),
        secrets.randbelow(1_000_000_000),
        b"x" * 200,
    )


def _on_jobs(stage: Stage) -> set[str]:
    """Ids of the definitions on `jobs`."""
    replay = KafkaReplay(stage.connection)
    ends = replay.end_offsets(stage.partitions("jobs"))
    return {
        (record.key or b"").decode()
        for chunk in replay.read(dict.fromkeys(ends, 0), ends)
        for record in chunk
        if record.value is not None
    }


def _percentile_ms(found_s: list[float], share: float) -> float:
    ordered = sorted(found_s)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 1) if ordered else 0.0
