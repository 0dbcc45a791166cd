"""Were leases kept? Judged from `leases`, `executions`, `results` and what handlers wrote down when they started.

What ought to have run is the checker's business; here it is that whatever ran was claimed once, held by one worker at
a time, and closed once, by its last holder.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.core.run import Decision, RunState
from noontide.ports.record_log import Incoming, TopicPartition
from noontide.records.leases import decode_lease
from noontide.records.topics import Layout

EXAMPLES_MAX: Final = 20
_DECISIONS: Final = frozenset(Decision)


class Held(NamedTuple):
    """A record of `leases`, in log order. state: None when the run is closed."""

    run_id: str
    state: RunState | None
    token: int = 0
    worker: str | None = None


class Closed(NamedTuple):
    """A record of `executions` or `results` about a run, not about an occurrence that was decided not to run."""

    run_id: str
    state: str
    token: int
    by_worker: bool


class Start(NamedTuple):
    """What a handler wrote down as the first thing it did. once: its run must never start twice."""

    run_id: str
    token: int
    appended_ms: int
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """Everything the judgement rests on, each in log order."""

    held: Sequence[Held] = ()
    closings: Sequence[Closed] = ()
    results: Sequence[Closed] = ()
    starts: Sequence[Start] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Counts, and findings (ids of runs), of which there must be none.

    claims: runs that workers had to carry out; grants: of leases; retries: grants beyond the first of a run.
    worst_gap_ms: the longest time in which no handler started.
    live: not closed. unclaimed: closed, but never live. claimed_twice: live again after its close.
    tokens: grants whose tokens do not grow, or two workers with one.
    started_twice: a handler started twice under one token. strange: started under a token nobody granted.
    closed_twice, results_twice: more than one end. without_result: closed, but nothing on `results`, or the reverse.
    stale: an end with another token than the last grant. unstarted: succeeded, but no handler ever started.
    once_again: at-most-once runs that started twice.
    """

    claims: int = 0
    grants: int = 0
    starts: int = 0
    retries: int = 0
    dead: int = 0
    worst_gap_ms: int = 0
    live: Sequence[str] = ()
    unclaimed: Sequence[str] = ()
    claimed_twice: Sequence[str] = ()
    tokens: Sequence[str] = ()
    started_twice: Sequence[str] = ()
    strange: Sequence[str] = ()
    closed_twice: Sequence[str] = ()
    results_twice: Sequence[str] = ()
    without_result: Sequence[str] = ()
    stale: Sequence[str] = ()
    unstarted: Sequence[str] = ()
    once_again: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not any(isinstance(value, list | tuple) and value for value in asdict(self).values())

    def as_json(self) -> dict[str, object]:
        """For programs: of each finding how many there are, and some of them when there are any."""
        fields: dict[str, object] = {}
        for name, value in asdict(self).items():
            if isinstance(value, int):
                fields[name] = value
            else:
                fields[name] = len(value)
                if value:
                    fields[f"{name}_examples"] = list(value)[:EXAMPLES_MAX]
        return fields


@dataclass(slots=True)
class _Life:
    """What `leases` says of one run."""

    grants: dict[int, set[str | None]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    closed: bool = False
    reopened: bool = False


def judge_runs(evidence: RunEvidence) -> RunReport:
    """The judgement; see `RunReport`."""
    lives = _lives(evidence.held)
    lines = [each for each in evidence.closings if each.by_worker]
    last = {run: max(life.grants, default=0) for run, life in lives.items()}
    started = Counter((each.run_id, each.token) for each in evidence.starts)
    starts_of = Counter(each.run_id for each in evidence.starts)
    ends = {each.run_id for each in lines}, {each.run_id for each in evidence.results}
    grants = sum(len(life.grants) for life in lives.values())
    return RunReport(
        claims=len(lives.keys() & ends[0]),
        grants=grants,
        starts=len(evidence.starts),
        retries=grants - sum(bool(life.grants) for life in lives.values()),
        dead=sum(each.state == RunState.DEAD for each in lines),
        worst_gap_ms=_worst_gap_ms(evidence.starts),
        live=_sorted(run for run, life in lives.items() if not life.closed),
        unclaimed=_sorted(ends[0] - lives.keys()),
        claimed_twice=_sorted(run for run, life in lives.items() if life.reopened),
        tokens=_sorted(run for run, life in lives.items() if not _grows(life)),
        started_twice=_sorted(run for (run, _), count in started.items() if count > 1),
        strange=_sorted(run for run, token in started if token not in lives.get(run, _Life()).grants),
        closed_twice=_doubles(evidence.closings),
        results_twice=_doubles(evidence.results),
        without_result=_sorted(ends[0] ^ ends[1]),
        stale=_sorted(each.run_id for each in (*lines, *evidence.results) if each.token != last.get(each.run_id, 0)),
        unstarted=_sorted(run for run, state, _, _ in lines if state == RunState.SUCCEEDED and not starts_of[run]),
        once_again=_sorted({each.run_id for each in evidence.starts if each.once and starts_of[each.run_id] > 1}),
    )


def _lives(held: Iterable[Held]) -> Mapping[str, _Life]:
    lives: defaultdict[str, _Life] = defaultdict(_Life)
    for each in held:
        life = lives[each.run_id]
        if each.state is None:
            life.closed = True
            continue
        life.reopened |= life.closed
        life.closed = False
        if each.state is RunState.RUNNING:
            life.grants.setdefault(each.token, set()).add(each.worker)
            life.tokens.append(each.token)
    return lives


def _grows(life: _Life) -> bool:
    return all(earlier <= later for earlier, later in pairwise(life.tokens)) and all(
        len(workers - {None}) <= 1 for workers in life.grants.values()
    )


def _worst_gap_ms(starts: Iterable[Start]) -> int:
    times = sorted(each.appended_ms for each in starts)
    return max((later - earlier for earlier, later in pairwise(times)), default=0)


def _doubles(ends: Iterable[Closed]) -> list[str]:
    return _sorted(run for run, count in Counter(each.run_id for each in ends).items() if count > 1)


def _sorted(runs: Iterable[str]) -> list[str]:
    return sorted(set(runs))


def gather_runs(connection: KafkaConnection, layout: Layout, starts: str) -> RunEvidence:
    """Read all of it, committed records only. starts: the topic of one partition that handlers write to.

    Raises Doubt or Unreachable when the brokers do not answer.
    """
    replay = KafkaReplay(connection)

    def records(topic: str, partitions: int) -> Iterator[Incoming]:
        ends = replay.stable_offsets([TopicPartition(topic, number) for number in range(partitions)])
        for chunk in replay.read(dict.fromkeys(ends, 0), ends):
            yield from chunk

    slots, history = layout.slots, layout.topic_partitions("executions")
    return RunEvidence(
        starts=[_start(each) for each in records(starts, 1)],
        results=[_closed(each) for each in records(layout.name("results"), history)],
        closings=[
            found
            for each in records(layout.name("executions"), history)
            if (found := _closed(each)).state not in _DECISIONS
        ],
        held=[_held(each) for each in records(layout.name("leases"), slots)],
    )


def _held(record: Incoming) -> Held:
    key = record.key or b""
    if record.value is None:
        return Held(key.decode(), None)
    run = decode_lease(key, record.value)
    return Held(run.run_id, run.state, run.token, run.worker)


def _closed(record: Incoming) -> Closed:
    fields = orjson.loads(record.value or b"{}")
    by_worker = not str(fields.get("target", "")).startswith("kafka://")
    return Closed(fields["run_id"], fields["state"], fields.get("token", 0), by_worker)


def _start(record: Incoming) -> Start:
    fields = orjson.loads(record.value or b"{}")
    return Start(fields["run_id"], fields["token"], record.appended_ms, fields.get("once", False))
