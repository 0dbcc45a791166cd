"""Headers of requests: what every request may say besides its matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noontide.core.errors import InvalidDefinition
from noontide.core.fields import text
from noontide.core.tracing import parse_traceparent

HEADER_MAX_BYTES, HEADERS_MAX = 1_024, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What every request may say besides its matter.

    if_match: ETag the job must have, without quotes; "*" = it must exist.
    must_be_new: there must be no job of the id yet.
    tenant: whose job the sender means it to be; None = not said (a definition says it in its body).
    idempotency_key: the same key asks for the same thing once.
    wants_verdict: the sender will ask what became of the request.
    actor: who asks, for the audit.
    traceparent: trace context of the sender, "" = none; see `core.tracing`.
    """

    if_match: str | None = None
    must_be_new: bool = False
    tenant: str | None = None
    idempotency_key: str | None = None
    wants_verdict: bool = False
    actor: str | None = None
    traceparent: str = ""


_KNOWN_HEADERS = frozenset(
    (
        "kind",
        "if-match",
        "if-none-match",
        "tenant",
        "idempotency-key",
        "verdict",
        "actor",
        "traceparent",
        "content-type",
    )
)


def read_headers(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, str]:
    """Headers that mean something here, by name in small letters; the last of several counts, null ones do not."""
    if len(headers) > HEADERS_MAX:
        raise InvalidDefinition.of("/headers", f"has {len(headers)} members, at most {HEADERS_MAX} are accepted")
    found: dict[str, str] = {}
    for header, value in headers:
        name = header.lower()
        if name not in _KNOWN_HEADERS or value is None:
            continue
        try:
            found[name] = value[: HEADER_MAX_BYTES + 1].decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidDefinition.of(f"/headers/{name}", "is not UTF-8") from None
    return found


_NO_TERMS = Terms()


def read_terms(said: dict[str, str]) -> Terms:
    if not said:
        return _NO_TERMS
    read = text(HEADER_MAX_BYTES)
    for header, value in said.items():
        read(value, f"/headers/{header}")
    if_match = said.get("if-match")
    verdict = said.get("verdict", "0")
    if verdict not in ("0", "1"):
        raise InvalidDefinition.of("/headers/verdict", 'must be "1" or left out')
    if said.get("if-none-match", "*") != "*":
        raise InvalidDefinition.of("/headers/if-none-match", "must be *: the job must not be there yet")
    return Terms(
        if_match=None if if_match is None else _etag(if_match),
        must_be_new="if-none-match" in said,
        tenant=said.get("tenant"),
        idempotency_key=said.get("idempotency-key"),
        wants_verdict=verdict == "1",
        actor=said.get("actor"),
        traceparent=parse_traceparent(said.get("traceparent")),
    )


def _etag(if_match: str) -> str:
    """The one ETag that `if-match` names, with or without quotes; weak ones and lists are refused."""
    etag = if_match.strip()
    quoted = len(etag) >= 2 and etag[0] == etag[-1] == '"'
    etag = etag[1:-1] if quoted else etag
    if not etag or etag.startswith("W/") or '"' in etag or "," in etag:
        raise InvalidDefinition.of("/headers/if-match", 'must be one strong ETag such as "3", or *')
    return etag
