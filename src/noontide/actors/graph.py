"""Who waits for whom: the edges at home in one slot, and the search for cycles.

    job with `after` ── edge ──> owner of the upstream: remembers whom to tell
                    <── upstream: it exists or not; its latest logical time
    job with `after` ── probe ─> upstream ── probe ─> its upstreams ... back at the first: a cycle, and it is blocked

A cycle that can be seen here is refused when it is defined; another one is found by the probe of its last definition.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from typing import TypeVar

from noontide.actors.effects import Effects, Scene
from noontide.actors.mailbox import Message, reading
from noontide.actors.request_input import Input
from noontide.actors.ties import Follows, Ties
from noontide.core.cursor import JobState
from noontide.core.dependencies import PATH_MAX, cycle_text, path_to
from noontide.core.errors import InvalidDefinition
from noontide.records import rows, state
from noontide.records.dependencies import (
    Upstreams,
    Wave,
    after_key,
    decode_after,
    decode_wave,
    edge_key,
    edge_key_parts,
    encode_fact,
    wave_key,
)
from noontide.records.executions import Range
from noontide.records.job_row import decode_job_row
from noontide.records.signals import Edge, Ended, Probe, Upstream
from noontide.records.state import decode_cursor
from noontide.records.topics import Layout

K = TypeVar("K")
V = TypeVar("V")
PROBES_MAX = 10_000
"""Probes that are remembered, so that one that comes by another way is not passed on again."""


def refuse_cycle(job_id: str, after: tuple[str, ...], scene: Scene) -> None:
    """Refuse a definition that closes a cycle which can be seen here. Raises InvalidDefinition with its path."""
    ties, fresh = scene.world.ties, scene.effects.ties.follows
    upstreams: defaultdict[str, list[str]] = defaultdict(list)
    for upstream, waiting in ties.dependants.items() if after else ():
        for each in waiting:
            upstreams[each].append(upstream)

    def upstreams_of(each: str) -> Iterable[str]:
        if each in fresh:
            return fresh[each].after
        known = ties.after.get(each)
        return upstreams[each] if known is None else known.names

    path = path_to(job_id, after, upstreams_of)
    if path is not None:
        raise InvalidDefinition.of("/after", f"would make a cycle: {cycle_text((job_id, *path))}")


class Graph:
    """The edges of one slot."""

    def __init__(self, layout: Layout, ties: Ties) -> None:
        self._ties = ties
        self._layout = layout
        self._probed = OrderedDict[tuple[str, str], None]()

    # --- gather

    def wanted(self, messages: Iterable[Message]) -> Iterable[bytes]:
        """Keys of the rows that deciding reads."""
        for message in messages:
            match message.signal:
                case Edge(upstream=job_id) | Upstream(downstream=job_id) | Ended(downstream=job_id):
                    yield from self.rows_of(job_id)
                case Probe(path=path):
                    yield from self.rows_of(path[0])

    def rows_of(self, job_id: str) -> tuple[bytes, bytes]:
        """Keys of a job's row and cursor."""
        home = self._layout.partition_of(job_id)
        return rows.job_key(home, job_id.encode()), rows.cursor_key(home, job_id.encode())

    # --- decide

    def decide(self, messages: Iterable[Message], scene: Scene) -> None:
        """Enter edges, answer them, pass probes on; tell dependants which upstreams came and went."""
        for message in messages:
            with reading(message.source):
                self._read(message, scene)
        changes = scene.effects.ties
        for job_id, follows in changes.follows.items():
            self._follow(job_id, follows, scene)
        for job_id in changes.appeared:
            self._announce(job_id, scene, exists=True)
        for job_id in changes.gone:
            if job_id in self._ties.after and job_id not in changes.follows:
                self._follow(job_id, Follows("", (), ""), scene)
            self._announce(job_id, scene, exists=False)

    def _read(self, message: Message, scene: Scene) -> None:
        match message.signal:
            case Edge() as edge:
                self._enter(edge, scene)
            case Upstream() as upstream:
                self._learn(upstream, scene)
            case Probe() as probe:
                self._search(probe, scene)

    def _follow(self, job_id: str, follows: Follows, scene: Scene) -> None:
        """A definition is in force: its edges are those it names and no others."""
        known = self._ties.after.get(job_id)
        before = () if known is None else known.names
        for upstream in before:
            if upstream not in follows.after:
                self._send(upstream, Edge(upstream, job_id, follows.tenant, gone=True), scene)
        for upstream in follows.after:  # each time: the tenant may be another one
            self._send(upstream, Edge(upstream, job_id, follows.tenant), scene)
            self._send(upstream, Probe((job_id, upstream), follows.version), scene)
        fact = None
        if follows.after:
            kept = known or Upstreams(follows.after)
            fact = Upstreams(
                follows.after,
                tuple(each for each in kept.missing if each in follows.after),
                {each: spans for each, spans in kept.passed.items() if each in follows.after},
            )
        put_after(scene.effects, job_id, fact)

    def _enter(self, edge: Edge, scene: Scene) -> None:
        upstream, downstream = edge.upstream, edge.downstream
        row = scene.effects.read(self.rows_of(upstream)[0])
        exists = row is not None and decode_job_row(row).tenant == edge.tenant
        is_foreign = row is not None and not exists
        put_edge(scene.effects, upstream, downstream, present=not edge.gone and not is_foreign)
        if not edge.gone:
            self._send(downstream, Upstream(upstream, downstream, exists), scene)

    def _announce(self, job_id: str, scene: Scene, *, exists: bool) -> None:
        for downstream in sorted(self._ties.dependants.get(job_id, ())):
            self._send(downstream, Upstream(job_id, downstream, exists), scene)

    def _learn(self, told: Upstream, scene: Scene) -> None:
        known = scene.effects.ties.after.get(told.downstream, self._ties.after.get(told.downstream))
        if known is None or told.upstream not in known.names:
            return
        missing = [each for each in known.missing if each != told.upstream] + ([] if told.exists else [told.upstream])
        fact = Upstreams(known.names, tuple(sorted(missing)), known.passed)
        put_after(scene.effects, told.downstream, fact)
        reason = f"waits for jobs that do not exist: {', '.join(fact.missing)}" if fact.missing else None
        self._restate(told.downstream, scene, reason=reason)

    def _search(self, probe: Probe, scene: Scene) -> None:
        at, origin = probe.path[-1], probe.path[0]
        known = scene.effects.ties.after.get(at, self._ties.after.get(at))
        if at == origin:
            if known is not None and probe.path[1] in known.names:
                self._restate(origin, scene, blocked=True, reason=f"cycle: {cycle_text(probe.path)}")
            return
        seen = (probe.version, at)
        if known is None or at in probe.path[:-1] or len(probe.path) > PATH_MAX or seen in self._probed:
            return
        scene.effects.ties.probed.append(seen)
        for upstream in known.names:
            self._send(upstream, Probe((*probe.path, upstream), probe.version), scene)

    def _restate(self, job_id: str, scene: Scene, *, reason: str | None, blocked: bool = False) -> None:
        """Say in the job's cursor what is the matter with it."""
        effects, home = scene.effects, self._layout.partition_of(job_id)
        value = effects.read(rows.cursor_key(home, job_id.encode()))
        cursor = None if value is None else decode_cursor(value)
        if cursor is None or cursor.state is not JobState.ACTIVE or (cursor.reason == reason and not blocked):
            return
        effects.unschedule(home, job_id.encode(), cursor)
        after = cursor._replace(reason=reason)
        if blocked:
            after = after._replace(state=JobState.BLOCKED, due_ms=None, start_ms=None)
            effects.counts["blocked"] += 1
        effects.put_cursor(home, job_id.encode(), after)

    def _send(self, job_id: str, signal: Edge | Upstream | Probe, scene: Scene) -> None:
        scene.effects.signal(self._layout.slot_of(self._layout.partition_of(job_id)), signal)

    # --- apply

    def apply(self, effects: Effects) -> None:
        """Take over what the commit made true."""
        changes = effects.ties
        for (upstream, downstream), present in changes.edges.items():
            if present:
                self._ties.dependants[upstream].add(downstream)
            else:
                self._forget_edge(upstream, downstream)
        for job_id, fact in changes.after.items():
            put_fact(self._ties.after, job_id, fact)
        for run_id, wave in changes.waves.items():
            put_fact(self._ties.waves, run_id, wave)
        for job_id, failures in changes.streaks.items():
            put_fact(self._ties.streaks, job_id, failures or None)
        for seen in changes.probed:
            self._probed[seen] = None
        while len(self._probed) > PROBES_MAX:
            self._probed.popitem(last=False)

    def _forget_edge(self, upstream: str, downstream: str) -> None:
        waiting = self._ties.dependants.get(upstream, set())
        waiting.discard(downstream)
        if not waiting:
            self._ties.dependants.pop(upstream, None)

    def load_note(self, key: bytes, value: bytes) -> None:
        """What an earlier owner knew."""
        if key.startswith(state.EDGE):
            upstream, downstream = edge_key_parts(key)
            self._ties.dependants[upstream].add(downstream)
        elif key.startswith(state.STREAK):
            (self._ties.streaks[key[len(state.STREAK) :].decode()],) = state.decode_counts(value, "failures")
        elif key.startswith(state.AFTER):
            job_id, fact = decode_after(key, value)
            self._ties.after[job_id] = fact
        else:
            run_id, wave = decode_wave(key, value)
            self._ties.waves[run_id] = wave


def tell_dependants(run_id: str, due_ms: int, end: str, scene: Scene, *, span: Range | None = None) -> None:
    """A run, or a decision about occurrences, is final: tell the jobs that wait for it.

    end: its final state. span: of many occurrences without a run. Runs by hand concern nobody, unless their dependants
    are to be run again too.
    """
    world, effects = scene
    job_id, _, suffix = run_id.rpartition(":")
    waiting = world.ties.dependants.get(job_id)
    wave = effects.ties.waves.get(run_id, world.ties.waves.get(run_id))
    if wave is not None:
        put_wave(effects, run_id, None)
    if not waiting or (wave is None and suffix.startswith("m")):
        return
    name, members = ("", ()) if wave is None else (wave.name, wave.members)
    life = suffix.partition("~")[2]
    for downstream in sorted(waiting):
        if wave is None or downstream in members:
            slot = world.layout.slot_of(world.layout.partition_of(downstream))
            until_ms, count = (None, 1) if span is None else span
            effects.signal(slot, Ended(job_id, downstream, due_ms, end, until_ms, count, name, members, int(life or 1)))


def put_after(effects: Effects, job_id: str, fact: Upstreams | None) -> None:
    """What is known of a job's upstreams; None = it has none."""
    effects.ties.after[job_id] = fact
    effects.put_note(after_key(job_id), None if fact is None else encode_fact(fact))


def put_edge(effects: Effects, upstream: str, downstream: str, *, present: bool) -> None:
    """Whether a job is told of the ends of another."""
    effects.ties.edges[upstream, downstream] = present
    effects.put_note(edge_key(upstream, downstream), b"{}" if present else None)


def put_wave(effects: Effects, run_id: str, wave: Wave | None) -> None:
    """A run is part of a re-run of a subtree; None = it is over."""
    job_id, _, suffix = run_id.rpartition(":")
    effects.ties.waves[run_id] = wave
    effects.put_note(wave_key(job_id, suffix), None if wave is None else encode_fact(wave))


def begin_wave(run_id: str, item: Input, wave: Wave, scene: Scene) -> None:
    """A run by hand that others follow: theirs are named by the request, so that each re-run has its own."""
    domain = item.origin.topic.removeprefix("requests.")
    name = f"m{item.origin.offset}-{domain}-{item.origin.partition}"
    put_wave(scene.effects, run_id, Wave(name, wave.due, wave.members))


def put_fact(known: dict[K, V], key: K, value: V | None) -> None:
    """Take over a fact, or that it is gone."""
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value
