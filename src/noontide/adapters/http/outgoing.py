"""From an invitation to the request: headers, body, credentials."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

import httpcore

from noontide.adapters.http.completion import make_completion_token
from noontide.adapters.http.refusals import Refused
from noontide.adapters.http.secrets import Destination, SecretStore
from noontide.adapters.http.settings import HttpSettings
from noontide.adapters.http.signing import signing_headers
from noontide.adapters.http.urls import Url, parse_url
from noontide.core.instants import format_instant
from noontide.core.target_fields import METHODS, RESERVED_HEADERS
from noontide.core.tracing import attempt_context
from noontide.records.runs import Invitation

Header = tuple[bytes, bytes]
NULL = b"null"
_SIGNATURE = frozenset((b"webhook-id", b"webhook-timestamp", b"webhook-signature"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request to be sent.

    headers: Noontide's own, without Host. custom: the target's. confidential: credentials, signature, callback.
    withheld: byte strings that must not be seen in what is kept of the response.
    """

    method: str
    url: Url
    headers: tuple[Header, ...]
    custom: tuple[Header, ...] = ()
    confidential: tuple[Header, ...] = ()
    body: bytes | None = None
    credentials: bool = False
    withheld: tuple[bytes, ...] = ()

    def for_httpcore(self, *, connect_timeout_s: float) -> httpcore.Request:
        """A body that is empty still has its length said; no body has neither."""
        headers = [(b"host", self.url.authority.encode()), *self.headers, *self.custom, *self.confidential]
        if self.body is not None:
            headers.append((b"content-length", b"%d" % len(self.body)))
        return httpcore.Request(
            self.method,
            self.url.for_httpcore(),
            headers=headers,
            content=self.body,
            extensions={"timeout": {"connect": connect_timeout_s}},
        )


class Requests:
    """Makes requests of invitations. callback_key: the deployment's secret for completion tokens; None = no callbacks.

    now_ms: the date, for signatures.
    """

    def __init__(
        self,
        settings: HttpSettings,
        secrets: SecretStore,
        *,
        now_ms: Callable[[], int],
        callback_key: bytes | None = None,
    ) -> None:
        self._settings = settings
        self._secrets = secrets
        self._now_ms = now_ms
        self._callback_key = callback_key

    def of(self, invitation: Invitation, token: int) -> Outgoing:
        """Raises Refused for a target that cannot be read or whose secrets may not be used, Unready without a value."""
        target = _members(invitation.target.get("http"), "http")
        method, url = str(target.get("method", "POST")), parse_url(str(target.get("url", "")))
        if method not in METHODS:
            raise Refused(f"refused: the method {method[:20]} is none of {', '.join(METHODS)}")
        destination = Destination(tenant=invitation.tenant, scheme=url.scheme, host=url.host)
        body = _body(method, invitation.payload)
        auth, withheld = self._auth(target.get("auth"), destination)
        signature = self._signature(target.get("sign"), destination, run_id=invitation.run_id, body=body or b"")
        custom = _custom(_members(target.get("headers") or {}, "headers"), taken={name.lower() for name, _ in auth})
        return Outgoing(
            method=method,
            url=url,
            headers=tuple(self._own(invitation, token, custom=custom, has_body=body is not None)),
            custom=tuple(custom),
            confidential=(*auth, *signature, *self._callback(invitation.run_id, token)),
            body=body,
            credentials=bool(auth or signature),
            withheld=withheld,
        )

    def _own(self, invitation: Invitation, token: int, *, custom: Iterable[Header], has_body: bool) -> Iterable[Header]:
        """What every request says; content-type, accept and user-agent give way to the target's own."""
        run_id = invitation.run_id.encode()
        yield b"Idempotency-Key", run_id
        yield b"Noontide-Job", invitation.job_id.encode()
        yield b"Noontide-Run", run_id
        yield b"Noontide-Attempt", b"%d" % invitation.attempt
        yield b"Noontide-Due", format_instant(invitation.due_ms).encode()
        yield b"Noontide-Token", b"%d" % token
        yield b"traceparent", attempt_context(run_id, token, invitation.traceparent).encode()
        given = {name.lower() for name, _ in custom}
        defaults = {
            b"user-agent": self._settings.user_agent.encode(),
            b"accept": b"*/*",
            b"accept-encoding": b"identity",
        }
        if has_body:
            defaults[b"content-type"] = b"application/json"
        yield from ((name, value) for name, value in defaults.items() if name not in given)

    def _auth(self, auth: object, destination: Destination) -> tuple[list[Header], tuple[bytes, ...]]:
        """The header, and what must not be seen again."""
        if auth is None:
            return [], ()
        match auth:
            case {"bearer": {"secret": str(name)}}:
                value = self._secrets.value(name, destination).reveal
                return [(b"Authorization", b"Bearer " + value)], (value,)
            case {"basic": {"username": str(username), "secret": str(name)}}:
                value = self._secrets.value(name, destination).reveal
                pair = base64.b64encode(username.encode() + b":" + value)
                return [(b"Authorization", b"Basic " + pair)], (pair, value)
            case {"header": {"name": str(header), "secret": str(name)}}:
                value = self._secrets.value(name, destination).reveal
                return [(header.encode(), value)], (value,)
        raise Refused("refused: auth has none of the known forms (bearer, basic, header)")

    def _signature(self, sign: object, destination: Destination, *, run_id: str, body: bytes) -> list[Header]:
        if sign is None:
            return []
        match sign:
            case {"secret": str(name)}:
                key = self._secrets.signing_key(name, destination).reveal
                return signing_headers(key, run_id=run_id, now_s=self._now_ms() // 1000, body=body)
        raise Refused('refused: sign must be {"secret": name}')

    def _callback(self, run_id: str, token: int) -> list[Header]:
        if self._callback_key is None or self._settings.callback_url is None:
            return []
        path = f"/v1/runs/{quote(run_id, safe=':@~')}/complete"
        query = make_completion_token(self._callback_key, run_id, token)
        return [(b"Noontide-Callback", f"{self._settings.callback_url.rstrip('/')}{path}?token={query}".encode())]


def _body(method: str, payload: bytes) -> bytes | None:
    """The payload's bytes as they are; none for GET and HEAD, nor for a DELETE that has nothing to say."""
    if method in ("GET", "HEAD") or (method == "DELETE" and payload == NULL):
        return None
    return payload


def _custom(headers: dict[str, object], *, taken: set[bytes]) -> list[Header]:
    """The target's headers without those it could not have set; a definition is refused for them before."""
    found = []
    for name, value in headers.items():
        lower = name.lower().encode("ascii", "replace")
        reserved = lower.decode() in RESERVED_HEADERS or lower.startswith(b"noontide-") or lower == b"authorization"
        if not (reserved or lower in taken or lower in _SIGNATURE):
            found.append((name.encode("ascii", "replace"), str(value).encode("ascii", "replace")))
    return found


def _members(value: object, name: str) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    raise Refused(f"refused: {name} of the target is no object")
