"""The body of a response, within its limit: what is beyond is not read, and an attempt to fill memory stays one."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from typing import NamedTuple, cast

import msgspec
import orjson

from noontide.adapters.http.connections import Exchange
from noontide.records.worker_events import NO_RESULT

REPLACEMENT = b"***"


class Captured(NamedTuple):
    """The beginning of a body. complete: it is all of it. readable: it is not in a coding that nobody asked for."""

    data: bytes
    complete: bool
    readable: bool = True


class Kept(NamedTuple):
    """A body as JSON text. truncated: not all of it."""

    result: msgspec.Raw
    truncated: bool


async def capture(exchange: Exchange, *, coding: str, max_bytes: int) -> Captured:
    """Read at most `max_bytes`, on the wire and unpacked. Raises what httpcore raises."""
    data = bytearray()
    unpack = Unpacking(coding)
    on_the_wire = 0
    chunks = cast("AsyncGenerator[bytes, None]", aiter(cast("AsyncIterable[bytes]", exchange.response.stream)))
    async with aclosing(chunks):
        async for chunk in chunks:
            on_the_wire += len(chunk)
            data += unpack.some(chunk, max_bytes + 1 - len(data))
            if len(data) > max_bytes or on_the_wire > max_bytes:
                return Captured(bytes(data[:max_bytes]), complete=False, readable=unpack.readable)
    exchange.ended = True
    return Captured(bytes(data), complete=unpack.finished(), readable=unpack.readable)


class Unpacking:
    """Undoes gzip and deflate a piece at a time, never further than asked: a bomb does not go off.

    Requests say `identity`; this is for servers that do not listen. Other codings are not kept at all.
    """

    def __init__(self, coding: str) -> None:
        coding = coding.strip().lower()
        self.readable = coding in ("", "identity", "gzip", "x-gzip", "deflate")
        packed = self.readable and coding not in ("", "identity")
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed else None  # 32: finds out which of the two
        self._broken = False

    def some(self, chunk: bytes, max_bytes: int) -> bytes:
        """At most `max_bytes` (at least one) of what a chunk unpacks to."""
        if not self.readable or self._broken:
            return b""
        if self._inflate is None:
            return chunk[:max_bytes]
        try:
            return self._inflate.decompress(chunk, max_bytes)
        except zlib.error:
            self._broken = True
            return b""

    def finished(self) -> bool:
        """Whether the end of the packed data has been seen and all of it was given out."""
        return self.readable and not self._broken and (self._inflate is None or self._inflate.eof)


def keep(captured: Captured, *, content_type: str, max_bytes: int, withheld: Sequence[bytes] = ()) -> Kept:
    """A body as JSON text of at most `max_bytes`: JSON stays as it is, all else becomes a string.

    A string is cut between characters; bytes that are no UTF-8 become U+FFFD. withheld: never to be seen in it.
    """
    data = _withhold(captured.data, withheld)
    if not data or not captured.readable:
        return Kept(NO_RESULT, truncated=not captured.complete)
    if captured.complete and len(data) <= max_bytes and _is_json(data, content_type):
        return Kept(msgspec.Raw(data), truncated=False)
    text = data.decode("utf-8", "replace")
    if not captured.complete:
        text = text.rstrip("\N{REPLACEMENT CHARACTER}")  # a character that the limit has split
    fitting = _longest_fitting(text, max_bytes)
    return Kept(msgspec.Raw(orjson.dumps(text[:fitting])), truncated=not captured.complete or fitting < len(text))


def _is_json(data: bytes, content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    if kind and not (kind.endswith("+json") or kind in ("application/json", "text/json")):
        return False
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _longest_fitting(text: str, max_bytes: int) -> int:
    """How many characters of a text fit as a JSON string; escapes take up to six bytes."""
    fits, too_long = 0, len(text) + 1
    if len(orjson.dumps(text)) <= max_bytes:
        return len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if len(orjson.dumps(text[:middle])) <= max_bytes:
            fits = middle
        else:
            too_long = middle
    return fits


def _withhold(data: bytes, withheld: Sequence[bytes]) -> bytes:
    """Servers that echo what they got must not bring a secret into the history."""
    for value in withheld:
        for form in {value, orjson.dumps(value.decode("ascii"))[1:-1]}:
            data = data.replace(form, REPLACEMENT)
    return data
