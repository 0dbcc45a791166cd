"""Records of `signals`: messages between slots, each part of its sender's transaction and consumed with its receiver's.

The header `kind` names the message; the partition says who sends to whom. `forward` is a request on its way and is read
elsewhere (`actors.inputs`); every other kind is a message of this module, as JSON.
"""

from __future__ import annotations

import msgspec

from noontide.ports.record_log import Headers, Record


class Ask(msgspec.Struct, frozen=True, tag="ask", tag_field="kind", omit_defaults=True):
    """A slot wants permits of a limiter for a tenant's runs, and gives others back.

    count: how many more it wants; negative when runs that waited do not need theirs any more. back: given back.
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


Signal = Ask | Grant

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
