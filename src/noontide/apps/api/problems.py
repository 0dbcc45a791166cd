"""Errors as problem documents (RFC 9457): `type`, `title`, `status`, `detail`, `errors: [{pointer, message}]`.

Pointers (RFC 6901) point into the body; `/query/<name>`, `/path/<name>` and `/headers/<name>` name what came elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.payload import NotJson, TooLarge

log = logging.getLogger("noontide.api")
MEDIA_TYPE = "application/problem+json"
CLIENT_GONE = 499
"""The status, in metrics only, of requests whose clients went away."""
TYPE_PREFIX = "urn:noontide:problem:"
_PLACES = {"query": "/query", "path": "/path", "header": "/headers", "body": ""}


class ApiProblem(Exception):
    """An answer that is an error.

    kind: the last part of the problem's `type`, such as "not-found". errors: what is wrong where. headers: more of
    the answer.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        errors: Iterable[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    def document(self) -> dict[str, Any]:
        """The problem document."""
        shown: dict[str, Any] = {
            "type": TYPE_PREFIX + self.kind,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            shown["errors"] = [{"pointer": each.pointer, "message": each.message} for each in self.errors]
        return shown

    def response(self) -> Response:
        """The answer."""
        body = orjson.dumps(self.document())
        return Response(body, self.status, headers=self.headers, media_type=MEDIA_TYPE)


class NotDecided(Exception):
    """A request is in the log, but nobody has decided it yet: 202 with where to ask again."""

    def __init__(self, request_id: str, *, location: str | None = None) -> None:
        super().__init__(request_id)
        self.request_id = request_id
        self._location = location or f"/v1/requests/{request_id}"

    def response(self) -> Response:
        """The answer."""
        headers = {"location": self._location, "retry-after": "1"}
        body = orjson.dumps({"id": self.request_id, "state": "pending"})
        return Response(body, 202, headers=headers, media_type="application/json")


def not_found(what: str) -> ApiProblem:
    """404: there is no such thing, or it belongs to somebody else; the answer does not say which."""
    return ApiProblem(404, "not-found", f"there is no {what}")


def unavailable(detail: str, *, retry_after_sec: int) -> ApiProblem:
    """503: not now; come again."""
    return ApiProblem(503, "unavailable", detail, headers={"retry-after": str(retry_after_sec)})


def invalid(refused: InvalidDefinition) -> ApiProblem:
    """What is wrong with a definition or another input: 400 for what is no JSON, 413 for too much, else 422."""
    status, kind = 422, "invalid"
    if isinstance(refused, NotJson):
        status, kind = 400, "not-json"
    elif isinstance(refused, TooLarge):
        status, kind = 413, "too-large"
    first = refused.problems[0]
    more = f" (and {len(refused.problems) - 1} more)" if len(refused.problems) > 1 else ""
    where = f"{first.pointer} " if first.pointer else "the body "
    return ApiProblem(status, kind, f"{where}{first.message}{more}", errors=refused.problems)


def of_parameters(refused: RequestValidationError) -> ApiProblem:
    """Parameters of the query, the path or the headers that cannot be read."""
    found = []
    for error in refused.errors():
        place, *names = error["loc"]
        pointer = "/".join([_PLACES.get(str(place), f"/{place}"), *map(str, names)])
        found.append(Problem(pointer, str(error["msg"])))
    return invalid(InvalidDefinition(tuple(found)))


def answer_with_problems(app: FastAPI) -> None:
    """Every error of the application is answered with a problem document."""

    @app.exception_handler(ApiProblem)
    async def _(_request: Request, problem: ApiProblem) -> Response:
        return problem.response()

    @app.exception_handler(NotDecided)
    async def _(_request: Request, open_request: NotDecided) -> Response:
        return open_request.response()

    @app.exception_handler(InvalidDefinition)
    async def _(_request: Request, refused: InvalidDefinition) -> Response:
        return invalid(refused).response()

    @app.exception_handler(RequestValidationError)
    async def _(_request: Request, refused: RequestValidationError) -> Response:
        return of_parameters(refused).response()

    @app.exception_handler(ClientDisconnect)
    async def _(_request: Request, _gone: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_GONE)  # for the counts: nobody reads it

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        kinds = {404: "not-found", 405: "method-not-allowed"}
        detail = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
        headers = dict(error.headers or {})
        return ApiProblem(error.status_code, kinds.get(error.status_code, "http"), detail, headers=headers).response()

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return ApiProblem(500, "internal", "something is wrong on our side; the log of the API says what").response()
