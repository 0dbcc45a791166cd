"""Records of `state` about jobs that wait for others.

edge/<upstream>/<downstream>   at the upstream's owner: who is to be told
after/<job>                    at the job's own: its upstreams, and what is known of them
join/<job>/<logical time>      at the job's own: how its upstreams ended so far
wave/<job>/<run suffix>        at the job's own: a run that is part of a re-run of a subtree
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from noontide.records import state

PASSED_MAX = 20
"""Ranges of passed occurrences that are remembered per upstream."""


class Upstreams(msgspec.Struct, frozen=True, omit_defaults=True):
    """The upstreams of a job, in order.

    missing: those that do not exist.
    passed: occurrences of an upstream that were passed over without a run, as (first, last), ms.
    """

    names: tuple[str, ...]
    missing: tuple[str, ...] = ()
    passed: dict[str, list[tuple[int, int]]] = {}

    def passed_over(self, upstream: str, due_ms: int) -> bool:
        """Whether the upstream has no run of this logical time, and never will have."""
        return any(first <= due_ms <= last for first, last in self.passed.get(upstream, ()))


class Join(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the upstreams of a job ended at one logical time. until: its deadline (or how long a decision is kept), ms.

    skipped: it is decided: skipped; an upstream that is redriven and succeeds may still change that.
    life: of what it waits for: 1, and one more each time something up the line was deleted and created anew.
    """

    got: dict[str, str]
    until: int
    skipped: bool = False
    members: tuple[str, ...] = ()
    life: int = 1


class Wave(msgspec.Struct, frozen=True):
    """A run that is part of a re-run of a subtree. name: suffix of its run ids; due: logical time, ms."""

    name: str
    due: int
    members: tuple[str, ...]


class JoinKey(NamedTuple):
    """Which join: of a job, at a logical time, of a re-run (its run suffix) or not ("")."""

    job_id: str
    due_ms: int
    wave: str = ""


_encode = msgspec.json.Encoder().encode
_decode_upstreams = msgspec.json.Decoder(Upstreams).decode
_decode_join = msgspec.json.Decoder(Join).decode
_decode_wave = msgspec.json.Decoder(Wave).decode


def encode_fact(fact: Upstreams | Join | Wave) -> bytes:
    """JSON of a fact."""
    return _encode(fact)


def edge_key(upstream: str, downstream: str) -> bytes:
    """`edge/<upstream>/<downstream>`."""
    return b"%s%s/%s" % (state.EDGE, upstream.encode(), downstream.encode())


def edge_key_parts(key: bytes) -> tuple[str, str]:
    """(upstream, downstream)."""
    upstream, _, downstream = key[len(state.EDGE) :].decode().partition("/")
    return upstream, downstream


def after_key(job_id: str) -> bytes:
    """`after/<job>`."""
    return state.AFTER + job_id.encode()


def decode_after(key: bytes, value: bytes) -> tuple[str, Upstreams]:
    """The job, and its upstreams."""
    return key[len(state.AFTER) :].decode(), _decode_upstreams(value)


def join_key(of: JoinKey) -> bytes:
    """`join/<job>/<logical time, ms>`, with `/<run suffix>` for a re-run."""
    suffix = f"/{of.wave}" if of.wave else ""
    return state.JOIN + f"{of.job_id}/{of.due_ms}{suffix}".encode()


def decode_join(key: bytes, value: bytes) -> tuple[JoinKey, Join]:
    """Which join, and how it stands."""
    job_id, due_ms, *wave = key[len(state.JOIN) :].decode().split("/")
    return JoinKey(job_id, int(due_ms), wave[0] if wave else ""), _decode_join(value)


def wave_key(job_id: str, suffix: str) -> bytes:
    """`wave/<job>/<run suffix>`."""
    return b"%s%s/%s" % (state.WAVE, job_id.encode(), suffix.encode())


def decode_wave(key: bytes, value: bytes) -> tuple[str, Wave]:
    """The run's id, and the wave."""
    job_id, _, suffix = key[len(state.WAVE) :].decode().partition("/")
    return f"{job_id}:{suffix}", _decode_wave(value)
