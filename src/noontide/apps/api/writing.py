"""The one way in: a request is appended to `requests.api`, and the owner's verdict on it is the answer."""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson

from noontide.actors.config_directory import ConfigDirectory
from noontide.adapters.kafka.request_line import RequestLine
from noontide.adapters.kafka.requests import NotSent
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.api.problems import ApiProblem, NotDecided, unavailable
from noontide.apps.api.settings import ApiSettings
from noontide.apps.api.verdicts import Place, Verdicts
from noontide.apps.port import wire
from noontide.core.access import Principal
from noontide.core.cursor import Cursor
from noontide.core.errors import Problem, Refusal
from noontide.ports.record_log import Receipt, Record, TopicPartition
from noontide.records.audit import config_change, encode_change
from noontide.records.requests import Kind
from noontide.records.state import decode_cursor
from noontide.records.topics import Layout

STATUS = {
    Refusal.INVALID: 422,
    Refusal.TOO_LARGE: 413,
    Refusal.NOT_FOUND: 404,
    Refusal.CONFLICT: 409,
    Refusal.STALE: 412,
    Refusal.QUOTA: 429,
}
QUOTA_RETRY_AFTER_SEC = 60
_matches_place = re.compile(r"([0-9]{1,4})-([0-9]{1,18})-([0-9]{1,15})(?:-([A-Za-z0-9_-]{22}))?").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request to be made. value: None = delete. tenant: whose job it is meant to be, None = whose it is."""

    kind: Kind
    job_id: str
    value: bytes | None
    who: Principal
    tenant: str | None = None
    if_match: str | None = None
    must_be_new: bool = False
    idempotency_key: str | None = None
    traceparent: str = ""

    @property
    def meant(self) -> str | None:
        """Whose job it is about; None when somebody who speaks for everybody did not say."""
        return self.tenant or self.who.tenant

    def record(self) -> Record:
        """The record on `requests.api`."""
        headers = [("actor", self.who.name.encode()), ("verdict", b"1")]
        optional = {
            "tenant": self.meant, "if-match": self.if_match, "idempotency-key": self.idempotency_key,
            "traceparent": self.traceparent or None,
        }  # fmt: skip
        headers += [(name, value.encode()) for name, value in optional.items() if value is not None]
        if self.must_be_new:
            headers.append(("if-none-match", b"*"))
        if self.kind is not Kind.DEFINE:
            headers.append(("kind", self.kind.encode()))
        return Record(self.job_id.encode(), self.value, headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An accepted request. repeated: it had been made before. cursor: where the job stands, when that is known.

    backfill: what the verdict says of one.
    """

    place: Place
    etag: str
    run_id: str | None
    repeated: bool
    cursor: Cursor | None
    backfill: Mapping[str, Any] | None = None


class Writer:
    """Makes requests and waits for their verdicts."""

    def __init__(
        self,
        config: ConfigDirectory,
        layout: Layout,
        line: RequestLine,
        verdicts: Verdicts,
        settings: ApiSettings,
        *,
        secret: str,
    ) -> None:
        self._secret = secret.encode()
        self._config = config
        self._layout = layout
        self._topic = layout.name("requests", domain="api")
        self._line = line
        self._verdicts = verdicts
        self._settings = settings

    async def ask(self, asked: Asked) -> Outcome:
        """Make a request. Raises ApiProblem when it is refused or the brokers do not take it; NotDecided."""
        place = await self._append(asked)
        decided = await self._verdicts.of(place, timeout_s=self._settings.verdict_wait_ms / 1000)
        if decided is None:
            raise NotDecided(self._name(place, asked.meant))
        return outcome_of(place, orjson.loads(bytes(decided.verdict)), bytes(decided.cursor))

    async def ask_many(self, many: Sequence[Asked]) -> list[Outcome | ApiProblem | str]:
        """The outcome of each, in order: a problem where it is refused, the id of the request where nobody decided."""
        placed = await asyncio.gather(*(self._append(each) for each in many), return_exceptions=True)
        places = [each for each in placed if isinstance(each, Place)]
        decided = await self._verdicts.of_many(places, timeout_s=self._settings.verdict_wait_ms / 1000)
        results = ((asked, each, _result(each, decided)) for asked, each in zip(many, placed, strict=True))
        return [result or self._name(cast("Place", each), asked.meant) for asked, each, result in results]

    async def configure(self, key: str, value: bytes | None, who: Principal) -> None:
        """Write a configuration, its trace first: there may be one without its change, never the other way round.

        Returns when this node has read it. Raises ApiProblem (503) when the brokers do not take it.
        """
        before = self._config.view.documents.get(key)
        text = None if before is None else orjson.dumps(dict(before))
        change = config_change(key, before=text, after=value, actor=who.name, at_ms=wall_now_ms())
        slot = self._layout.slot_of(self._layout.partition_of(key))
        await self._sent(TopicPartition(self._layout.name("audit"), slot), Record(key.encode(), encode_change(change)))
        await self._sent(TopicPartition(self._layout.name("config"), 0), Record(key.encode(), value))
        await self._config.refresh()

    async def say(self, lane: str, slot: int, frame: Record) -> None:
        """Pass on what a worker of a lane says to a slot. Raises ApiProblem (503) when the brokers do not take it."""
        await self._sent(TopicPartition(self._layout.name("worker-events", lane=lane), slot), frame)

    async def state_of(self, name: str, who: Principal) -> dict[str, Any]:
        """What became of a request. Raises ApiProblem when nobody knows, or it was made for another tenant."""
        found = _matches_place(name)
        if found is None or int(found[1]) >= self._layout.partitions:
            raise ApiProblem(404, "not-found", "no request has this id")
        place = Place(int(found[1]), int(found[2]), int(found[3]))
        if not (who.everywhere or any(hmac.compare_digest(found[4] or "", self._seal(place, t)) for t in who.tenants)):
            raise ApiProblem(404, "not-found", "no request has this id")
        answer = await self._verdicts.ask(place)
        if answer.verdicts:
            return {"id": name, "state": "decided", **orjson.loads(bytes(answer.verdicts[0].verdict))}
        if answer.open:
            return {"id": name, "state": "pending"}
        raise ApiProblem(404, "not-found", "there is no such request, or its verdict has been forgotten")

    def _name(self, place: Place, tenant: str | None) -> str:
        """The id of a request: where it is, sealed for whoever may ask about it."""
        return "-".join((*map(str, place), self._seal(place, tenant or "")))

    def _seal(self, place: Place, tenant: str) -> str:
        said = f"noontide.request\n{tenant}\n{place}".encode()
        return base64.urlsafe_b64encode(hmac.digest(self._secret, said, "sha256")[:16]).rstrip(b"=").decode()

    async def _append(self, asked: Asked) -> Place:
        at = TopicPartition(self._topic, self._layout.partition_of(asked.job_id))
        receipt = await self._sent(at, asked.record())
        return Place(at.partition, receipt.first_offset, receipt.appended_ms)

    async def _sent(self, at: TopicPartition, record: Record) -> Receipt:
        try:
            return await self._line.send(at, record)
        except NotSent as not_sent:
            detail = (
                f"the request may not have been stored ({not_sent}); send it again, with an idempotency key "
                "if it must not happen twice"
            )
            raise unavailable(detail, retry_after_sec=self._settings.retry_after_sec) from None


def _result(
    placed: Place | BaseException, decided: Mapping[tuple[int, int], wire.Decided]
) -> Outcome | ApiProblem | None:
    """What became of one; None when nobody has decided it."""
    if isinstance(placed, ApiProblem):
        return placed
    if isinstance(placed, BaseException):
        raise placed
    found = decided.get(placed[:2])
    if found is None:
        return None
    try:
        return outcome_of(placed, orjson.loads(bytes(found.verdict)), bytes(found.cursor))
    except ApiProblem as problem:
        return problem


def outcome_of(place: Place, verdict: dict[str, Any], cursor: bytes) -> Outcome:
    """What a verdict says. Raises ApiProblem when it is a refusal."""
    if verdict["verdict"] != "accepted":
        raise refusal_of(verdict)
    return Outcome(
        place=place,
        etag=verdict.get("etag", ""),
        run_id=verdict.get("run_id"),
        repeated=verdict.get("repeated", False),
        cursor=None if cursor == b"null" else decode_cursor(cursor),
        backfill=verdict.get("backfill"),
    )


def refusal_of(verdict: dict[str, Any]) -> ApiProblem:
    """A refusal as a problem document."""
    refusal = Refusal(verdict.get("refusal", Refusal.INVALID))
    problems = [Problem(each["pointer"], each["message"]) for each in verdict.get("problems", ())]
    detail = "; ".join(f"{each.pointer} {each.message}".strip() for each in problems[:3]) or "refused"
    headers = {"retry-after": str(QUOTA_RETRY_AFTER_SEC)} if refusal is Refusal.QUOTA else None
    return ApiProblem(STATUS[refusal], refusal, detail, errors=problems, headers=headers)
