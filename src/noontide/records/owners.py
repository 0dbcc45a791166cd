"""Records of `owners`: who works on a slot (key: the slot), who keeps a copy (key: slot/process), and how they are.

Written every few seconds, so a record that is much older than that speaks of a process that is gone.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from noontide.records.topics import Layout

OWNER, STANDBY = "owner", "standby"


class OwnerStatus(NamedTuple):
    """How an owner or a standby is.

    phase: in a word or two. restore_ms: how long the take-over took, None until it is over.
    read, total: offsets of the replay under way. lag: records that wait to be decided (owner) or copied (standby).
    late_ms: how long what is due has been waiting. cycle, cycle_at: number and broker time of the latest cycle.
    """

    phase: str
    restore_ms: int | None = None
    read: int = 0
    total: int = 0
    lag: int = 0
    late_ms: int = 0
    cycle: int = 0
    cycle_at: int = 0


class Speaker(NamedTuple):
    """Who speaks for a slot. process: its id. since_ms: when it began, 0 while no time is known. url: where to ask."""

    process: str
    role: str = OWNER
    since_ms: int = 0
    url: str | None = None


def speaker_key(slot: int, speaker: Speaker) -> bytes:
    """Key of what is said of a slot: an owner replaces the one before, standbys stand beside each other."""
    return str(slot).encode() if speaker.role == OWNER else f"{slot}/{speaker.process}".encode()


def encode_owner(layout: Layout, slot: int, status: OwnerStatus, speaker: Speaker) -> bytes:
    """JSON of an owner's or a standby's record."""
    numbers = layout.partitions_of(slot)
    value = {
        "slot": slot,
        "role": speaker.role,
        "owner": speaker.process,
        "url": speaker.url,
        "generation": 0,
        "since": speaker.since_ms,
        "partitions": [numbers[0], numbers[-1]],
        **status._asdict(),
    }
    return orjson.dumps(value)


class Said(NamedTuple):
    """What somebody said of a slot, and when by the broker's clock."""

    slot: int
    role: str
    process: str
    partitions: tuple[int, int]
    since_ms: int
    said_ms: int
    status: OwnerStatus


def decode_owner(value: bytes, said_ms: int) -> Said:
    """Inverse of `encode_owner`; what an older version does not say has its default. Raises ValueError, KeyError."""
    fields = orjson.loads(value)
    known = {name: fields[name] for name in OwnerStatus._fields if name in fields}
    first, last = fields["partitions"]
    return Said(
        slot=fields["slot"],
        role=fields.get("role", OWNER),
        process=fields["owner"],
        partitions=(first, last),
        since_ms=fields["since"],
        said_ms=said_ms,
        status=OwnerStatus(**{"phase": "working", **known}),
    )
