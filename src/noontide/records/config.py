"""Records of the `config` topic, and the view of them that every process keeps.

Keys: `tenant/<id>`, `domain/<name>`, `calendar/<name>`, `target/<name>`, `lane/<name>`, `channel/<name>`,
`secret/<name>`, `token/<id>`, `meta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType

import orjson

from noontide.core.calendar import Calendar, parse_calendar
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.fields import escape, nearest
from noontide.records.limit_book import EXACT_STARTS, NO_LIMITS, LimitBook, book_of, check_target_limits, check_tenant
from noontide.records.tokens import decode_token
from noontide.records.topics import is_parameter

FIELDS: Mapping[str, tuple[str, ...]] = {
    "tenant": ("weight", "concurrency_max", "concurrency_keys", EXACT_STARTS),
    "domain": ("tenants",),
    "calendar": ("dates",),
    "target": ("topic", "handler", "url", "concurrency_max", "starts_per_second_max", "tenants"),
    "lane": ("note",),
    "channel": ("url", "format", "email", "topic", "tenants", "secret"),
    "secret": ("tenants", "hosts", "plain_http"),
    "token": (
        "role", "tenants", "secrets", "created_at", "created_by", "expires_at", "requests_per_second", "note",
    ),
}  # fmt: skip
"""What may be said of each kind."""
KINDS = tuple(FIELDS)
NAME_MAX_CHARS = 200
EVERYBODY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTopic:
    """A topic that runs are written to in the claim's own transaction. `tenants`: who may use it; "*" = everybody."""

    name: str
    topic: str
    tenants: frozenset[str]

    def allows(self, tenant: str) -> bool:
        """Whether jobs of the tenant may go there."""
        return EVERYBODY in self.tenants or tenant in self.tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    """Everything operators have configured, as of `offset` (the next one to read of the topic).

    calendars_version: changes whenever the days of a calendar do; "" without calendars.
    """

    offset: int = 0
    documents: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, RegisteredTopic] = field(default_factory=lambda: MappingProxyType({}))
    calendars: Mapping[str, Calendar] = field(default_factory=lambda: MappingProxyType({}))
    limits: LimitBook = NO_LIMITS
    calendars_version: str = ""

    def may_speak_for(self, domain: str, tenant: str) -> bool:
        """Whether requests of the domain may name the tenant; a domain that nobody restricted may name any."""
        document = self.documents.get(f"domain/{domain}")
        if document is None:
            return True
        tenants = document.get("tenants", EVERYBODY)
        return tenants == EVERYBODY or (isinstance(tenants, list) and tenant in tenants)

    @property
    def lanes(self) -> frozenset[str]:
        """Names of the configured lanes."""
        return frozenset(key.partition("/")[2] for key in self.documents if key.startswith("lane/"))

    @property
    def domains(self) -> frozenset[str]:
        """Names of the configured domains."""
        return frozenset(key.partition("/")[2] for key in self.documents if key.startswith("domain/"))


def check_config(key: str, value: bytes) -> Mapping[str, object]:
    """Parse and check one configuration. Raises InvalidDefinition naming the field."""
    kind, _, name = key.partition("/")
    if key != "meta" and (kind not in KINDS or not name):
        raise InvalidDefinition.of("", f"the key {key!r} is not one of {', '.join(k + '/<name>' for k in KINDS)}")
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidDefinition.of("", f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidDefinition.of("", "expected an object")
    _check_kind(kind, name, document)
    return document


def check_name(name: str) -> None:
    """Refuse a name that cannot be part of a path. Raises InvalidDefinition."""
    if not 1 <= len(name) <= NAME_MAX_CHARS or not name.isprintable() or "/" in name:
        raise InvalidDefinition.of("/name", f"must be 1 to {NAME_MAX_CHARS} printable characters without '/'")


def check_new_config(key: str, value: bytes) -> Mapping[str, object]:
    """The same for one that is about to be written: a field that means nothing is refused, with the nearest known."""
    document = check_config(key, value)
    check_name(key.partition("/")[2])
    known = FIELDS.get(key.partition("/")[0], tuple(document))
    unknown = [
        Problem(f"/{escape(name[:64])}", f"is not a known field{nearest(name, known)}")
        for name in document
        if name not in known
    ]
    if unknown:
        raise InvalidDefinition(tuple(unknown))
    return document


def _check_kind(kind: str, name: str, document: dict[str, object]) -> None:
    match kind:
        case "target":
            check_target_limits(document)
            _tenants(document)
        case "tenant":
            check_tenant(document)
        case "secret":
            _check_secret(document)
        case "token":
            decode_token(name, document)
        case "calendar":
            parse_calendar(name, document, pointer="")
        case "domain" | "lane" if not is_parameter(name):
            raise InvalidDefinition.of("", f"{name!r} cannot name a {kind}: 1 to 63 of a-z, 0-9, '_' and '-'")
        case "domain":
            tenants = document.get("tenants", EVERYBODY)
            if tenants != EVERYBODY and not _is_names(tenants):
                raise InvalidDefinition.of("/tenants", 'expected "*" or a list of tenant ids')


def _check_secret(document: Mapping[str, object]) -> None:
    for member in ("tenants", "hosts"):
        named = document.get(member)
        if named != EVERYBODY and not (_is_names(named) and named):
            raise InvalidDefinition.of(f"/{member}", 'expected "*" or a list of names, not empty')


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _tenants(document: Mapping[str, object]) -> frozenset[str]:
    tenants = document.get("tenants", [EVERYBODY])
    listed = [EVERYBODY] if tenants == EVERYBODY else tenants
    if not isinstance(listed, list) or not _is_names(listed):
        raise InvalidDefinition.of("/tenants", 'expected "*" or a list of tenant ids')
    return frozenset(listed)


def updated_view(view: ConfigView, records: list[tuple[str, bytes | None]], *, offset: int) -> ConfigView:
    """The view after more records; a record that cannot be understood leaves what was there before."""
    documents = dict(view.documents)
    for key, value in records:
        if value is None:
            documents.pop(key, None)
            continue
        try:
            documents[key] = check_config(key, value)
        except InvalidDefinition:
            continue
    calendars = {
        _name(key): parse_calendar(_name(key), doc, pointer="")
        for key, doc in documents.items()
        if key.startswith("calendar/")
    }
    return ConfigView(
        offset=offset,
        documents=documents,
        topics=_registered(documents),
        calendars=calendars,
        limits=book_of(documents),
        calendars_version=_version(calendars),
    )


def _registered(documents: Mapping[str, Mapping[str, object]]) -> dict[str, RegisteredTopic]:
    """Registered topics by topic; one that has two names may be used by the tenants of both."""
    found: dict[str, RegisteredTopic] = {}
    for key in sorted(documents):
        if key.startswith("target/") and documents[key].get("topic") is not None:
            topic, tenants = str(documents[key]["topic"]), _tenants(documents[key])
            known = found.get(topic)
            named = (_name(key), tenants) if known is None else (known.name, known.tenants | tenants)
            found[topic] = RegisteredTopic(name=named[0], topic=topic, tenants=named[1])
    return found


def _version(calendars: Mapping[str, Calendar]) -> str:
    if not calendars:
        return ""
    days = repr(sorted((name, calendar.ranges) for name, calendar in calendars.items()))
    return blake2b(days.encode(), digest_size=8).hexdigest()


def _name(key: str) -> str:
    return key.partition("/")[2]
