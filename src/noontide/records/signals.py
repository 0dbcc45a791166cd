"""Records of `signals`: messages between slots, each part of its sender's transaction and consumed with its receiver's.

The header `kind` names the message; the partition says who sends to whom. `forward` is a request on its way and is read
elsewhere (`actors.inputs`); every other kind is a message of this module, as JSON.
"""

from __future__ import annotations

import msgspec

from noontide.ports.record_log import Headers, Record
from noontide.records.limit_book import TENANT


class Ask(msgspec.Struct, frozen=True, tag="ask", tag_field="kind", omit_defaults=True):
    """A slot wants permits of a limiter for a tenant's runs, and gives others back.

    count: how many more it wants; negative when runs that waited do not need theirs any more. back: given back;
    negative for runs that were with workers before there was this limit, and count from now on.
    """

    limiter: str
    tenant: str
    count: int = 0
    back: int = 0

    @property
    def key(self) -> str:
        """Key of the record."""
        return self.limiter


class Grant(msgspec.Struct, frozen=True, tag="grant", tag_field="kind"):
    """A limiter gives a slot permits for a tenant's runs; they are the slot's until it gives them back."""

    limiter: str
    tenant: str
    count: int

    @property
    def key(self) -> str:
        """Key of the record."""
        return self.limiter


class Edge(msgspec.Struct, frozen=True, tag="edge", tag_field="kind", omit_defaults=True):
    """A job waits for an upstream from now on, or (gone) does not any more. tenant: whose job it is."""

    upstream: str
    downstream: str
    tenant: str = ""
    gone: bool = False

    @property
    def key(self) -> str:
        """Key of the record."""
        return self.upstream


class Upstream(msgspec.Struct, frozen=True, tag="upstream", tag_field="kind", omit_defaults=True):
    """What a job that waits has to know of an upstream: whether it exists."""

    upstream: str
    downstream: str
    exists: bool

    @property
    def key(self) -> str:
        """Key of the record."""
        return self.downstream


class Ended(msgspec.Struct, frozen=True, tag="ended", tag_field="kind", omit_defaults=True):
    """A run (or decision) of an upstream is final: due is the logical time, ms.

    until, count: of many occurrences without a run, the last one, and how many there are.
    wave: suffix of the run ids of a re-run of a subtree; members: the jobs that take part in it.
    life: the number behind `~` in the upstream's run id, 1 without one.
    """

    upstream: str
    downstream: str
    due: int
    state: str
    until: int | None = None
    count: int = 1
    wave: str = ""
    members: tuple[str, ...] = ()
    life: int = 1

    @property
    def key(self) -> str:
        """Key of the record."""
        return self.downstream


class Probe(msgspec.Struct, frozen=True, tag="probe", tag_field="kind"):
    """A search for a cycle: path is the chain of jobs, each waiting for the next; the last one is asked to go on.

    version: ETag of the definition of the first, which began it.
    """

    path: tuple[str, ...]
    version: str

    @property
    def key(self) -> str:
        """Key of the record."""
        return self.path[-1]


class Reserve(msgspec.Struct, frozen=True, tag="reserve", tag_field="kind", omit_defaults=True):
    """May a job insist on its minutes? request: the origin of the definition; until: its end, ms, 0 = none."""

    tenant: str
    job_id: str
    schedule: str
    request: str
    until: int = 0

    @property
    def key(self) -> str:
        """Key of the record: the name whose partition is the quota's home."""
        return TENANT + self.tenant


class Reserved(msgspec.Struct, frozen=True, tag="reserved", tag_field="kind", omit_defaults=True):
    """The answer to `Reserve`. problem: why not; empty when it counts from now on."""

    tenant: str
    job_id: str
    request: str
    problem: str = ""

    @property
    def key(self) -> str:
        """Key of the record."""
        return self.job_id


class Insist(msgspec.Struct, frozen=True, tag="insist", tag_field="kind", omit_defaults=True):
    """How a job counts from now on, without being asked. schedule: "" = not at all; until: as in `Reserve`."""

    tenant: str
    job_id: str
    schedule: str = ""
    until: int = 0

    @property
    def key(self) -> str:
        """Key of the record: the name whose partition is the quota's home."""
        return TENANT + self.tenant


Signal = Ask | Grant | Edge | Upstream | Ended | Probe | Reserve | Reserved | Insist

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Signal] = msgspec.json.Decoder(Signal)


def encode_signal(signal: Signal) -> Record:
    """The record of a message."""
    value = _encode(signal)
    return Record(signal.key.encode(), value, [("kind", type(signal).__name__.lower().encode())])


def decode_signal(value: bytes | None, headers: Headers) -> Signal | None:
    """Inverse of `encode_signal`; None for a forwarded request, and for what is no message."""
    if ("kind", b"forward") in headers:
        return None
    try:
        return _decoder.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
