"""Sending requests and waiting for what the owner of the partition decides about them.

Definitions are followed on `jobs` (header `origin`) and `rejected`, so that a hundred thousand of them leave nothing
behind; single commands ask for a verdict, which the owner keeps in `state`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.tail import Tail
from noontide.apps.cli.common import NO_ANSWER, Fault, actor_name
from noontide.core.cursor import Cursor
from noontide.core.errors import Problem
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.rejected import Origin
from noontide.records.state import CURSOR, VERDICT, decode_cursor
from noontide.records.topics import Layout

DOMAIN: Final = "public"
POLL_S: Final = 0.1


class Request(NamedTuple):
    """A request to be sent. place: where it was read, for messages; kind None = define."""

    job_id: str
    value: bytes | None
    place: str = ""
    kind: str | None = None
    if_match: str | None = None


class Refused(NamedTuple):
    """A request that the owner did not accept."""

    request: Request
    problems: tuple[Problem, ...]


@dataclass(slots=True)
class Answers:
    """What is known of the requests so far.

    cursors: where jobs stand, by id, when that was asked for. backfills: what verdicts say of them, by job.
    """

    accepted: list[str] = field(default_factory=list)
    etags: dict[str, str] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    backfills: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class Asker:
    """Sends requests of one domain, and follows the answers from before the first was sent.

    follow: topics on which answers are looked for: `jobs`, `rejected`, `state`.
    """

    def __init__(
        self, connection: KafkaConnection, layout: Layout, *, domain: str = DOMAIN, follow: Sequence[str] = ()
    ) -> None:
        self._layout = layout
        self._short = f"requests.{domain}"
        self._topic = layout.name("requests", domain=domain)
        self._producer = RequestProducer(connection)
        self._names = {layout.name(topic): topic for topic in follow}
        partitions = [
            TopicPartition(name, number)
            for name, topic in self._names.items()
            for number in range(layout.topic_partitions(topic))
        ]
        self._tail = Tail(connection, KafkaReplay(connection).end_offsets(partitions)) if partitions else None
        self._open: dict[str, Request] = {}
        self.answers = Answers()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tail is not None:
            self._tail.close()

    def send(self, requests: Iterable[Request], *, on_sent: Callable[[int], None]) -> None:
        """Send all of them and wait for the acknowledgements; `on_sent` gets the number acknowledged so far."""
        opened = self._open

        for count, request in enumerate(requests, start=1):
            at = TopicPartition(self._topic, self._layout.partition_of(request.job_id))
            record = Record(request.job_id.encode(), request.value, self._headers(request))
            self._producer.send(at, record, self._noting(request))
            if count % 1_000 == 0:
                on_sent(len(opened))
        self._producer.flush()
        on_sent(len(opened))

    def await_answers(self, *, timeout_s: float, on_answered: Callable[[int], None]) -> None:
        """Follow until every request is decided. Raises Fault (3) when nothing is decided for `timeout_s`."""
        assert self._tail is not None
        moved_s = time.monotonic()
        while self._open:
            before = len(self._open)
            for record in self._tail.poll(POLL_S):
                self._take(record)
            if len(self._open) != before:
                moved_s = time.monotonic()
                on_answered(before - len(self._open))
            elif time.monotonic() - moved_s > timeout_s:
                raise Fault(
                    f"{len(self._open)} of {len(self.answers.origins)} requests were sent but not decided within "
                    f"{timeout_s:.0f} s: is a scheduler running?",
                    exit_code=NO_ANSWER,
                )

    def await_cursors(self, job_ids: set[str], *, timeout_s: float) -> None:
        """Follow a little longer, for the cursors that are written in the same transaction on another topic."""
        assert self._tail is not None
        until_s = time.monotonic() + timeout_s
        while not job_ids <= self.answers.cursors.keys() and time.monotonic() < until_s:
            for record in self._tail.poll(POLL_S):
                self._take(record)

    def _headers(self, request: Request) -> list[tuple[str, bytes]]:
        headers = [("actor", actor_name().encode())]
        if request.kind is not None:
            headers.append(("kind", request.kind.encode()))
        if request.if_match is not None:
            headers.append(("if-match", request.if_match.encode()))
        if "jobs" not in self._names.values() and self._names:
            headers.append(("verdict", b"1"))
        return headers

    def _noting(self, request: Request) -> Callable[[TopicPartition, int], None]:
        opened, origins, short = self._open, self.answers.origins, self._short

        def noted(at: TopicPartition, offset: int) -> None:
            origin = Origin(topic=short, partition=at.partition, offset=offset)
            origins.append(origin)
            opened[origin.text] = request

        return noted

    def _take(self, record: Incoming) -> None:
        match self._names[record.topic]:
            case "jobs":
                self._accept(_header(record, "origin"), _header(record, "etag"))
            case "rejected":
                self._reject(record.value or b"{}")
            case _:
                self._take_state(record)

    def _take_state(self, record: Incoming) -> None:
        key, value = record.key or b"", record.value
        if value is None:
            return
        if key.startswith(CURSOR):
            self.answers.cursors[key.removeprefix(CURSOR).decode()] = decode_cursor(value)
        elif key.startswith(VERDICT):
            verdict = orjson.loads(value)
            if verdict["verdict"] == "accepted":
                self._accept(key.removeprefix(VERDICT).decode(), verdict.get("etag", ""), verdict.get("backfill"))
            else:
                self._refuse(key.removeprefix(VERDICT).decode(), verdict.get("problems", ()))

    def _accept(self, origin: str, etag: str, backfill: Mapping[str, Any] | None = None) -> None:
        request = self._open.pop(origin, None)
        if request is not None:
            self.answers.accepted.append(request.job_id)
            self.answers.etags[request.job_id] = etag
            if backfill is not None:
                self.answers.backfills[request.job_id] = backfill

    def _reject(self, value: bytes) -> None:
        rejection = orjson.loads(value)
        origin = Origin(**rejection["origin"])
        self._refuse(origin.text, rejection.get("problems", ()))

    def _refuse(self, origin: str, problems: Iterable[Mapping[str, str]]) -> None:
        request = self._open.pop(origin, None)
        if request is not None:
            named = tuple(Problem(each["pointer"], each["message"]) for each in problems)
            self.answers.refused.append(Refused(request, named))


def ask(connection: KafkaConnection, layout: Layout, request: Request, *, domain: str, timeout_s: float) -> Answers:
    """Send one request that leaves no trace on `jobs`, and wait for the verdict. Raises Fault when it is refused."""
    (answers,) = (ask_all(connection, layout, [request], domain=domain, timeout_s=timeout_s),)
    if answers.refused:
        raise Fault(f"{request.job_id}: {sentence(answers.refused[0].problems)}")
    return answers


def ask_all(
    connection: KafkaConnection, layout: Layout, requests: Sequence[Request], *, domain: str, timeout_s: float
) -> Answers:
    """Send requests and wait for their verdicts."""
    with Asker(connection, layout, domain=domain, follow=("state",)) as asker:
        asker.send(requests, on_sent=_nobody)
        asker.await_answers(timeout_s=timeout_s, on_answered=_nobody)
        return asker.answers


def sentence(problems: Iterable[Problem]) -> str:
    """Problems in one line; those of the request as a whole without a pointer."""
    return "; ".join(f"{each.pointer}: {each.message}" if each.pointer else each.message for each in problems)


def _nobody(_count: int) -> None:
    return None


def _header(record: Incoming, name: str) -> str:
    return next((value.decode() for header, value in record.headers if header == name), "")
