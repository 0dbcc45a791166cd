"""Who asks. The application is made with a way to find out; routes say which role they need.

Without access control (`noontide dev`) everybody is an admin of all tenants.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from noontide.apps.api.parameters import check_parameters
from noontide.apps.api.problems import ApiProblem
from noontide.core.access import ALL_TENANTS, Need, Principal, Role

__all__ = (
    "EVERYBODY", "Admin", "Authenticate", "Needs", "Operator", "Principal", "Role", "Supervisor", "Viewer", "Worker",
    "everybody", "principal",
)  # fmt: skip

Authenticate = Callable[[Request], Awaitable[Principal]]
"""Finds out who asks. Raises ApiProblem (401) when that is nobody we know."""

EVERYBODY = Principal(name="anonymous", role=Role.ADMIN, tenants=frozenset({ALL_TENANTS}))


async def everybody(_request: Request) -> Principal:
    """No access control: for an API that only this machine can reach."""
    return EVERYBODY


async def principal(request: Request) -> Principal:
    """Who asks; found out once per request."""
    known = getattr(request.state, "principal", None)
    if known is None:
        authenticate: Authenticate = request.app.state.authenticate
        known = request.state.principal = await authenticate(request)
    assert isinstance(known, Principal)
    return known


class Needs:
    """A dependency that gives who asks, and refuses (403) who may not do this. need: what the table of access says."""

    def __init__(self, role: Role, *, everywhere: bool = False) -> None:
        self.need = Need(role, everywhere)

    async def __call__(self, request: Request) -> Principal:
        """Who asks. Raises ApiProblem: 401 when that is nobody we know, 403 when they may not; InvalidDefinition."""
        found = await principal(request)
        if not found.role.covers(self.need.role):
            raise ApiProblem(403, "forbidden", f"this needs the role {self.need.role}; {found.name} is {found.role}")
        if not found.may(self.need):
            raise ApiProblem(403, "forbidden", f"this is for all tenants; {found.name} speaks for some of them only")
        check_parameters(request)
        return found


Viewer = Annotated[Principal, Depends(Needs(Role.VIEWER))]
"""Look."""
Operator = Annotated[Principal, Depends(Needs(Role.OPERATOR))]
"""Create, change and delete jobs; start, cancel and redrive runs; work on them."""
Worker = Annotated[Principal, Depends(Needs(Role.OPERATOR, everywhere=True))]
"""Work on the runs of a lane, which are of all tenants."""
Admin = Annotated[Principal, Depends(Needs(Role.ADMIN, everywhere=True))]
"""Configure tenants, targets, calendars, lanes and channels: what belongs to no single tenant."""
Supervisor = Annotated[Principal, Depends(Needs(Role.VIEWER, everywhere=True))]
"""Look at what all tenants share: processes, and who runs what."""
