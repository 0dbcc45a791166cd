"""Changing the configuration from the command line: read, write, and leave a trace on `audit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.cli.common import USAGE, Cluster, Fault, actor_name
from noontide.apps.cli.reading import Reader
from noontide.apps.cli.spans import is_span, parse_span_ms
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant
from noontide.ports.record_log import Record, TopicPartition
from noontide.records.audit import config_change, encode_change
from noontide.records.config import check_config
from noontide.records.tokens import Token, decode_token, encode_token

_TOKEN = "token/"
_AT_ONCE = "0s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of an installation as one person changes it. now_ms: when the command began."""

    reader: Reader
    actor: str
    now_ms: int

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """That of a cluster. Raises Fault when there is none."""
        reader = Reader(connection=cluster.connection(), layout=cluster.layout())
        return cls(reader=reader, actor=actor_name(), now_ms=wall_now_ms())

    def tokens(self) -> dict[str, Token]:
        """Tokens by name. Raises InvalidDefinition for one that cannot be read."""
        found = {key.removeprefix(_TOKEN): value for key, value in self.reader.config().items() if key[:6] == _TOKEN}
        return {name: decode_token(name, check_config(_TOKEN + name, value)) for name, value in found.items()}

    def put_token(self, token: Token) -> None:
        """Write a token."""
        self.put(_TOKEN + token.id, encode_token(token))

    def put(self, key: str, value: bytes) -> None:
        """Set a key to JSON that was checked."""
        self._write(key, value)

    def delete(self, key: str) -> None:
        """Remove a key."""
        self._write(key, None)

    def instant(self, text: str, *, option: str) -> int:
        """An instant that is to come: RFC 3339, or in how long. Raises Fault."""
        try:
            at_ms = self.now_ms + parse_span_ms(text, pointer=option) if is_span(text) else _instant_ms(text, option)
        except InvalidDefinition as refused:
            raise Fault(str(refused), exit_code=USAGE) from refused
        if at_ms <= self.now_ms:
            raise Fault(f"{option}: {text} is over already", exit_code=USAGE)
        return at_ms

    def span_ms(self, text: str, *, option: str) -> int:
        """A duration, which may be nothing. Raises Fault."""
        try:
            return 0 if text == _AT_ONCE else parse_span_ms(text, pointer=option)
        except InvalidDefinition as refused:
            raise Fault(str(refused), exit_code=USAGE) from refused

    def _write(self, key: str, value: bytes | None) -> None:
        """The trace first: there may be one without its change, never a change without its trace."""
        layout, before = self.reader.layout, self.reader.config().get(key)
        change = config_change(key, before=before, after=value, actor=self.actor, at_ms=self.now_ms)
        trace = TopicPartition(layout.name("audit"), layout.slot_of(layout.partition_of(key)))
        producer = RequestProducer(self.reader.connection)
        records = ((trace, encode_change(change)), (TopicPartition(layout.name("config"), 0), value))
        for at, text in records:
            producer.send(at, Record(key.encode(), text), lambda _at, _offset: None)
            producer.flush()


def _instant_ms(text: str, option: str) -> int:
    return parse_instant(text, zone=None, pointer=option)
