"""Names of query parameters: one that is not known is an error, as in a body, and not a filter that filters nothing.

What is known is what the OpenAPI document says.
"""

from __future__ import annotations

from fastapi import Request

from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.fields import escape, nearest

SHOWN_MAX_CHARS = 64
SHOWN_MAX = 20


def check_parameters(request: Request) -> None:
    """Raises InvalidDefinition naming the parameters that the route does not have."""
    if not request.scope["query_string"]:
        return
    known = _known(request)
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        raise InvalidDefinition(tuple(_problem(name, known) for name in unknown[:SHOWN_MAX]))


def _known(request: Request) -> set[str]:
    operation = request.app.openapi()["paths"].get(request.scope["route"].path, {}).get(request.method.lower(), {})
    return {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}


def _problem(name: str, known: set[str]) -> Problem:
    return Problem(f"/query/{escape(name[:SHOWN_MAX_CHARS])}", f"is not a known parameter{nearest(name, known)}")
