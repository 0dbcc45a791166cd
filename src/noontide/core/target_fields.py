"""Reading the `target` of a definition. Only its shape is judged; addresses are checked when a run is delivered."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from noontide.core.errors import InvalidDefinition
from noontide.core.fields import Findings, escape, listed, members, name, text
from noontide.core.limits import Limits
from noontide.core.targets import (
    Auth,
    BasicAuth,
    BearerAuth,
    HandlerTarget,
    HeaderAuth,
    HttpTarget,
    Target,
    TopicTarget,
)

FORMS = (
    '{"http": {"url": "https://..."}}, {"topic": {"name": "..."}}, {"handler": "..."}, '
    'or the short forms "https://...", "kafka://<topic>", "handler:<name>"'
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
RESERVED_HEADERS = frozenset((
    "idempotency-key", "traceparent", "tracestate", "host", "content-length", "transfer-encoding", "connection",
    "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade", "expect",
))  # fmt: skip
"""Set by the scheduler or the HTTP client, or meaningful for one connection only (RFC 9110, section 7.6.1)."""
_KINDS = ("http", "topic", "handler")
_HTTP_FIELDS = ("url", "method", "headers", "auth", "sign")
_TOPIC_FIELDS = ("name", "key")
_AUTH_FIELDS = {"bearer": ("secret",), "basic": ("username", "secret"), "header": ("name", "secret")}
_AUTH_FORMS = (
    '{"bearer": {"secret": "..."}}, {"basic": {"username": "...", "secret": "..."}} or '
    '{"header": {"name": "...", "secret": "..."}}'
)

_matches_topic = re.compile(r"[A-Za-z0-9._-]{1,249}").fullmatch
_matches_handler = re.compile(r"[A-Za-z0-9._:-]{1,200}").fullmatch
_matches_host = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]").fullmatch
_matches_url_text = re.compile(r"[!-\[\]-~]+").fullmatch  # visible ASCII without the backslash
_matches_header_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_matches_header_value = re.compile(r"[\t -~]*").fullmatch


class TargetReader:
    """Reads targets for one set of limits and one topic prefix."""

    __slots__ = ("_limits", "_topic_prefix")

    def __init__(self, limits: Limits, topic_prefix: str) -> None:
        self._limits = limits
        self._topic_prefix = topic_prefix

    def read(self, value: object, pointer: str, findings: Findings) -> tuple[Target, object]:
        """The target, and its long form when it was given in a short one (else None).

        Raises InvalidDefinition with every problem of the target.
        """
        long = _long_form(value, pointer) if isinstance(value, str) else None
        given = members(long or value, pointer, _KINDS, findings)
        if len(given) != 1:
            raise InvalidDefinition.of(pointer, f"must name exactly one target: {FORMS}")
        ((kind, settings),) = given.items()
        match kind, settings:
            case ("http", str()):
                long = {"http": {"url": settings}}
            case ("topic", str()):
                long = {"topic": {"name": settings}}
        settings = (long or given)[kind]
        return self._read_kind(kind, settings, f"{pointer}/{kind}", findings), long

    def _read_kind(self, kind: str, settings: object, pointer: str, findings: Findings) -> Target:
        match kind:
            case "http":
                return self._http(settings, pointer, findings)
            case "topic":
                return self._topic(settings, pointer, findings)
            case _:
                return HandlerTarget(name=_handler_name(settings, pointer))

    def _topic(self, value: object, pointer: str, findings: Findings) -> TopicTarget:
        given = members(value, pointer, _TOPIC_FIELDS, findings)
        topic = self._topic_name(given.get("name"), f"{pointer}/name")
        key = given.get("key")
        return TopicTarget(
            name=topic, key=None if key is None else text(self._limits.text_max_chars)(key, f"{pointer}/key")
        )

    def _topic_name(self, value: object, pointer: str) -> str:
        if not isinstance(value, str) or not _matches_topic(value) or value in (".", ".."):
            raise InvalidDefinition.of(pointer, "must be a topic name: 1 to 249 of A-Z a-z 0-9 . _ -, not '.' or '..'")
        if value.startswith("__") or (self._topic_prefix and value.startswith(self._topic_prefix)):
            raise InvalidDefinition.of(pointer, "must not be an internal topic of Kafka or of the scheduler")
        return value

    def _http(self, value: object, pointer: str, findings: Findings) -> HttpTarget:
        given = members(value, pointer, _HTTP_FIELDS, findings)
        own = Findings(self._limits)
        url = own.read(self._url, given.get("url"), f"{pointer}/url")
        method = own.read(_method, given.get("method", "POST"), f"{pointer}/method")
        headers = own.read(self._headers, given.get("headers", {}), f"{pointer}/headers")
        auth = own.read(self._auth, given["auth"], f"{pointer}/auth") if "auth" in given else None
        if isinstance(auth, HeaderAuth) and auth.header.lower() in {header.lower() for header, _ in headers or ()}:
            own.refuse(f"{pointer}/headers/{escape(auth.header)}", "is set by auth already")
        sign = own.read(self._sign, given["sign"], f"{pointer}/sign") if "sign" in given else None
        if own.problems or url is None or method is None or headers is None:
            raise InvalidDefinition(tuple(own.problems))
        return HttpTarget(url=url, method=method, headers=headers, auth=auth, sign=sign)

    def _url(self, value: object, pointer: str) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= self._limits.url_max_chars:
            raise InvalidDefinition.of(pointer, f"must be a URL of at most {self._limits.url_max_chars} characters")
        if problem := _url_problem(value):
            raise InvalidDefinition.of(pointer, problem)
        return value

    def _headers(self, value: object, pointer: str) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, dict) or len(value) > self._limits.headers_max:
            raise InvalidDefinition.of(
                pointer, f"must be an object of at most {self._limits.headers_max} header names and values"
            )
        own = Findings(self._limits)
        seen: set[str] = set()
        for header, content in value.items():
            at = f"{pointer}/{escape(header[:64])}"
            if problem := self._header_problem(header, content):
                own.refuse(at, problem)
            elif header.lower() in seen:
                own.refuse(at, "is given twice (names of headers are the same in any case)")
            seen.add(header.lower())
        if own.problems:
            raise InvalidDefinition(tuple(own.problems))
        return tuple(value.items())

    def _header_problem(self, header: str, content: object) -> str | None:
        if problem := _header_name_problem(header):
            return problem
        if header.lower() == "authorization":
            return f"must not carry credentials; use auth: {_AUTH_FORMS}"
        maximum = self._limits.header_max_chars
        if not isinstance(content, str) or len(content) > maximum or not _matches_header_value(content):
            return f"must be a string of at most {maximum} ASCII characters without line breaks or other controls"
        return None

    def _sign(self, value: object, pointer: str) -> str:
        if not isinstance(value, dict) or set(value) != {"secret"}:
            raise InvalidDefinition.of(pointer, 'must be {"secret": "name"}')
        return name(self._limits.name_max_chars)(value["secret"], f"{pointer}/secret")

    def _auth(self, value: object, pointer: str) -> Auth:
        kind, given = _auth_members(value, pointer)
        secret = name(self._limits.name_max_chars)(given["secret"], f"{pointer}/{kind}/secret")
        match kind:
            case "bearer":
                return BearerAuth(secret=secret)
            case "basic":
                return BasicAuth(username=_username(given["username"], f"{pointer}/basic/username"), secret=secret)
            case _:
                return HeaderAuth(header=_auth_header(given["name"], f"{pointer}/header/name"), secret=secret)


def _long_form(value: str, pointer: str) -> dict[str, object]:
    if value.startswith(("https://", "http://")):
        return {"http": {"url": value}}
    if value.startswith("kafka://"):
        return {"topic": {"name": value.removeprefix("kafka://")}}
    if value.startswith("handler:"):
        return {"handler": value.removeprefix("handler:")}
    raise InvalidDefinition.of(pointer, f"must be {FORMS}")


def _handler_name(value: object, pointer: str) -> str:
    if isinstance(value, str) and _matches_handler(value):
        return value
    raise InvalidDefinition.of(pointer, "must be the name of a handler: 1 to 200 characters of A-Z a-z 0-9 . _ : -")


def _method(value: object, pointer: str) -> str:
    if isinstance(value, str) and value in METHODS:
        return value
    raise InvalidDefinition.of(pointer, f"must be one of {listed(METHODS)}")


def _url_problem(url: str) -> str | None:
    if not _matches_url_text(url):
        return "must be visible ASCII: percent-encode other characters, write other alphabets' hosts in punycode"
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number up to 65535
    except ValueError as refused:
        return f"is not a URL ({refused})"
    if parts.scheme not in ("http", "https"):
        return 'must begin with "https://" or "http://"'
    if "@" in parts.netloc:
        return "must not carry credentials; use auth with the name of a secret"
    host = parts.netloc if parts.port is None else parts.netloc.rpartition(":")[0]
    if not _matches_host(host.removesuffix(":")):
        return "must name a host"
    if parts.fragment or url.endswith("#"):
        return "must not have a fragment: it is never sent"
    return None


def _header_name_problem(header: str) -> str | None:
    if not 0 < len(header) <= 128 or not _matches_header_name(header):
        return "is not a header name (RFC 9110, section 5.6.2)"
    if header.lower() in RESERVED_HEADERS or header.lower().startswith("noontide-"):
        return "is a reserved header: it is set by the scheduler or belongs to the connection"
    return None


def _auth_members(value: object, pointer: str) -> tuple[str, dict[str, object]]:
    if not isinstance(value, dict) or len(value) != 1 or not (value.keys() <= _AUTH_FIELDS.keys()):
        raise InvalidDefinition.of(pointer, f"must be {_AUTH_FORMS}")
    ((kind, given),) = value.items()
    if not isinstance(given, dict) or given.keys() != set(_AUTH_FIELDS[kind]):
        raise InvalidDefinition.of(f"{pointer}/{kind}", f"must have exactly {listed(_AUTH_FIELDS[kind])}")
    return kind, given


def _username(value: object, pointer: str) -> str:
    username = text(200)(value, pointer)
    if ":" in username:
        raise InvalidDefinition.of(pointer, "must not contain a colon (RFC 7617, section 2)")
    return username


def _auth_header(value: object, pointer: str) -> str:
    header = text(128)(value, pointer)
    if problem := _header_name_problem(header):
        raise InvalidDefinition.of(pointer, problem)
    return header
