"""The completion endpoint: a target that answered 202 with `Noontide-Async: true` calls it when it is done.

    POST /v1/runs/<run id>/complete?token=<token>
    {"outcome": "succeeded", "result": ...}   or   {"outcome": "failed", "error": "...", "permanent": false}

The token is an HMAC over run id and fencing token under a secret of the deployment, so whoever holds it can end exactly
this grant of this run, and nothing has to be looked up. Plain ASGI, for any server and below any prefix.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
import orjson

from noontide.core.errors import NoontideError
from noontide.records.worker_events import ERROR_MAX_CHARS, NO_RESULT, RESULT_MAX_BYTES, End, Outcome

Complete = Callable[[End], Awaitable[None]]
"""Passes an end on; returns once it cannot be lost any more, else raises OSError, TimeoutError or NoontideError."""
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

BODY_MAX_BYTES = RESULT_MAX_BYTES + 16 * 1024
_matches_path = re.compile(r".*/v1/runs/([^/]{1,600})/complete").fullmatch
_matches_token = re.compile(r"([0-9]{1,19})\.([A-Za-z0-9_-]{43})").fullmatch


class Completion(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a completion. permanent: do not retry this failure. retry_after_ms: wait before the retry."""

    outcome: Literal["succeeded", "failed"]
    result: msgspec.Raw = msgspec.Raw(b"")
    error: str | None = None
    permanent: bool = False
    retry_after_ms: int | None = None


_decode = msgspec.json.Decoder(Completion).decode


class Problem(Exception):
    """An answer as RFC 9457 has it."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.document = {"type": "about:blank", "title": title, "status": status, "detail": detail}


def make_completion_token(key: bytes, run_id: str, token: int) -> str:
    """The text that permits to end this grant of this run; safe in URLs. key: the deployment's, at least 16 bytes."""
    return f"{token}.{_mac(key, run_id, token)}"


def check_completion_token(key: bytes, run_id: str, text: str) -> int | None:
    """The fencing token that a text speaks for; None when it was not made for this run with this key."""
    found = _matches_token(text)
    if found is None:
        return None
    token = int(found[1])
    return token if hmac.compare_digest(found[2], _mac(key, run_id, token)) else None


def _mac(key: bytes, run_id: str, token: int) -> str:
    if len(key) < 16:
        raise ValueError("the key of completion tokens must have at least 16 bytes")
    said = f"noontide.completion\n{token}\n{run_id}".encode()
    return base64.urlsafe_b64encode(hmac.digest(key, said, hashlib.sha256)).rstrip(b"=").decode()


def completion_app(complete: Complete, *, key: bytes) -> App:
    """The endpoint as an ASGI application.

    Answers 202 when `complete` has returned: whether the end still counts is for the owner of the run to say. Answers
    403 for tokens that are not ours, 404, 405, 413, 422 with the reason, and 503 when `complete` could not pass it on.
    """

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"no {scope['type']} here")
        try:
            end = _end(await _authorised(scope, key), await _body(receive))
            await _pass_on(complete, end)
        except Problem as problem:
            await _answer(send, problem.status, problem.document)
        else:
            await _answer(send, 202, {"run_id": end.run_id, "outcome": end.outcome})

    return app


async def _authorised(scope: Message, key: bytes) -> tuple[str, int]:
    """Run id and fencing token."""
    path = _matches_path(scope["path"])
    if path is None:
        raise Problem(404, "Not found", "the path is /v1/runs/<run id>/complete")
    if scope["method"] != "POST":
        raise Problem(405, "Method not allowed", "completions are sent with POST")
    given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])
    token = check_completion_token(key, path[1], given[0])
    if token is None or len(given) != 1:
        raise Problem(403, "Forbidden", "the token does not belong to this run")
    return path[1], token


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Problem(400, "Bad request", "the body broke off")
        body += bytes(message.get("body", b""))
        if len(body) > BODY_MAX_BYTES:
            raise Problem(413, "Content too large", f"a completion has at most {BODY_MAX_BYTES} bytes")
        if not message.get("more_body", False):
            return body


def _end(whose: tuple[str, int], body: bytes) -> End:
    try:
        said = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(422, "Unprocessable content", str(error)) from None
    result = bytes(said.result)
    if len(result) > RESULT_MAX_BYTES:
        raise Problem(413, "Content too large", f"a result has at most {RESULT_MAX_BYTES} bytes of JSON")
    if said.retry_after_ms is not None and said.retry_after_ms < 0:
        raise Problem(422, "Unprocessable content", "retry_after_ms must not be negative")
    run_id, token = whose
    if said.outcome == "succeeded":
        return End(run_id=run_id, token=token, outcome=Outcome.SUCCEEDED, result=_raw(result))
    error_text = (said.error or "the target said that it failed")[:ERROR_MAX_CHARS]
    return End(
        run_id=run_id, token=token, outcome=Outcome.FAILED, permanent=said.permanent, error=error_text,
        retry_after_ms=said.retry_after_ms, result=_raw(result),
    )  # fmt: skip


def _raw(result: bytes) -> msgspec.Raw:
    return msgspec.Raw(result) if result else NO_RESULT


async def _pass_on(complete: Complete, end: End) -> None:
    try:
        await complete(end)
    except (OSError, TimeoutError, NoontideError):
        raise Problem(503, "Service unavailable", "the completion could not be stored; send it again") from None


async def _answer(send: Send, status: int, document: object) -> None:
    problem = status >= 400
    headers = [(b"content-type", b"application/problem+json" if problem else b"application/json")]
    if status == 503:
        headers.append((b"retry-after", b"5"))
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(document)})
