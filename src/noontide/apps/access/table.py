"""Who may use which endpoint, read off the routes: one table for the documentation and for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from fastapi import APIRouter
from fastapi.routing import APIRoute

from noontide.apps.api.principal import Needs
from noontide.core.access import Need

OPEN: Final = frozenset(("/healthz", "/readyz", "/v1/openapi.json", "/v1/login"))
"""What is answered without asking who it is: nothing of anybody's is in it."""


class Line(NamedTuple):
    """need: None = nobody is asked who they are."""

    method: str
    path: str
    need: Need | None


def access_table(routers: Iterable[APIRouter]) -> list[Line]:
    """One line per endpoint of these routers, by path."""
    found = [
        Line(method, route.path, _need(route))
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]
    return sorted(found, key=lambda line: (line.path, line.method))


def _need(route: APIRoute) -> Need | None:
    return next((each.call.need for each in route.dependant.dependencies if isinstance(each.call, Needs)), None)
