"""Bodies and parameters of requests, read strictly."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import orjson
from fastapi import Request, Response

from noontide.apps.api.problems import ApiProblem
from noontide.core.errors import InvalidDefinition
from noontide.core.ids import JOB_ID_FORM, is_job_id
from noontide.core.payload import decode_json, kind_of

JSON_TYPES = frozenset(("application/json",))
PATCH_TYPES = frozenset(("application/json", "application/merge-patch+json"))
_charset = re.compile(r'charset\s*=\s*"?([^";\s]+)', re.IGNORECASE).search


async def body_of(request: Request, types: Collection[str] = JSON_TYPES) -> bytes:
    """The body, once its type is one of `types`; a request that names no type is taken at its word."""
    given = request.headers.get("content-type")
    if given is not None:
        media_type, _, parameters = given.partition(";")
        charset = _charset(parameters)
        if media_type.strip().lower() not in types or (charset and charset[1].lower() not in ("utf-8", "utf8")):
            accepted = " or ".join(sorted(types))
            raise ApiProblem(415, "media-type", f"the body must be {accepted} in UTF-8, not {given[:100]}")
    return await request.body()


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises InvalidDefinition."""
    value = decode_json(body)
    if not isinstance(value, dict):
        raise InvalidDefinition.of("", f"must be a JSON object, not {kind_of(value)}")
    return value


def job_id_of(text: str) -> str:
    """A job id of the path. What is no job id names no job: 404 with the legal form."""
    if not is_job_id(text):
        raise ApiProblem(404, "not-found", f"no job can have this id: {JOB_ID_FORM}")
    return text


def json_response(document: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in strict JSON."""
    return Response(orjson.dumps(document), status, headers=headers, media_type="application/json")
