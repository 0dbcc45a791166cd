"""Records of the `audit` topic: who changed what, before and after, without payloads and without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import orjson

from noontide.core.payload import member_texts

VALUE_MAX_BYTES: Final = 64 * 1024
"""Most of what was before, and of what is after; a longer value is left out."""
REDACTED: Final = "***"
_PLAIN_HEADERS: Final = frozenset(
    ("accept", "accept-encoding", "accept-language", "content-type", "content-language", "user-agent")
)


class Action(StrEnum):
    """What was done."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    TRIGGERED = "triggered"
    CANCELLED = "cancelled"
    BACKFILLED = "backfilled"
    REDRIVEN = "redriven"
    CONFIGURED = "configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change. subject: `job/<id>`, `run/<run id>` or the key on `config`.

    before, after: JSON texts of objects that may be shown; None = there was none, there is none any more.
    actor: who asked. origin: the request. at_ms: its append time.
    """

    action: Action
    subject: str
    at_ms: int
    tenant: str | None = None
    actor: str | None = None
    origin: str | None = None
    before: bytes | None = None
    after: bytes | None = None
    note: str = ""


def encode_change(change: Change) -> bytes:
    """JSON of a change."""
    document: dict[str, object] = {"action": change.action, "subject": change.subject, "at": change.at_ms}
    optional = {"tenant": change.tenant, "actor": change.actor, "origin": change.origin, "note": change.note or None}
    document |= {name: value for name, value in optional.items() if value is not None}
    if _too_long(change.before) or _too_long(change.after):
        document["truncated"] = True
    return orjson.dumps(document | {"before": _shown(change.before), "after": _shown(change.after)})


def shown_definition(document: bytes) -> bytes:
    """A normalised definition as the audit shows it: without its payload, and without what its target may keep secret.

    Of headers of HTTP targets only the usual harmless ones are shown, of URLs neither user nor query.
    """
    texts = member_texts(document)
    texts.pop("payload", None)
    shown: dict[str, object] = {name: orjson.Fragment(bytes(text)) for name, text in texts.items()}
    target = orjson.loads(bytes(texts["target"])) if "target" in texts else None
    if isinstance(target, dict) and isinstance(target.get("http"), dict):
        shown["target"] = target | {"http": _shown_http(target["http"])}
    return orjson.dumps(shown)


def shown_config(key: str, document: Mapping[str, object] | None) -> bytes | None:
    """A configuration as the audit and lists show it: no hash of a token, no path of a webhook."""
    if document is None:
        return None
    shown = dict(document)
    if key.startswith("token/"):
        shown.pop("secrets", None)
    url = shown.get("url")
    if isinstance(url, str):
        parts = urlsplit(url)
        shown["url"] = f"{parts.scheme}://{parts.hostname or ''}/{REDACTED}"
    return orjson.dumps(shown)


def config_change(key: str, *, before: bytes | None, after: bytes | None, actor: str, at_ms: int) -> Change:
    """The change of a configuration. before, after: what is and will be on `config`; JSON, or anything that was."""
    return Change(
        action=Action.CONFIGURED,
        subject=key,
        at_ms=at_ms,
        tenant=key.removeprefix("tenant/") if key.startswith("tenant/") else None,
        actor=actor,
        before=shown_config(key, _object(before)),
        after=shown_config(key, _object(after)),
    )


def _object(value: bytes | None) -> dict[str, object] | None:
    """The object that a value is; an empty one when it is none."""
    if value is None:
        return None
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown_http(http: Mapping[str, object]) -> dict[str, object]:
    shown = dict(http)
    headers, url = shown.get("headers"), shown.get("url")
    if isinstance(headers, dict):
        shown["headers"] = {
            name: value if name.lower() in _PLAIN_HEADERS else REDACTED for name, value in headers.items()
        }
    if isinstance(url, str):
        scheme, _, rest = url.partition("://")
        address, question, _ = rest.partition("?")
        authority, slash, path = address.partition("/")
        shown["url"] = f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}{question and '?' + REDACTED}"
    return shown


def _too_long(value: bytes | None) -> bool:
    return value is not None and len(value) > VALUE_MAX_BYTES


def _shown(value: bytes | None) -> orjson.Fragment | dict[str, object] | None:
    if value is None:
        return None
    return {} if len(value) > VALUE_MAX_BYTES else orjson.Fragment(value)
