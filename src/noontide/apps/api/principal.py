"""Who asks. The application is made with a way to find out; routes say which role they need.

Without access control (`noontide dev`) everybody is an operator of all tenants.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from fastapi import Depends, Request

from noontide.apps.api.problems import ApiProblem


class Role(IntEnum):
    """What somebody may do; each may do what the ones before may."""

    VIEWER = 1
    """Look."""
    OPERATOR = 2
    """Create, change and delete jobs; start, cancel and redrive runs."""
    ADMIN = 3
    """Configure tenants, targets, calendars, lanes and channels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks. name: for the audit; tenant: the only one they see and speak for, None = all."""

    name: str
    role: Role
    tenant: str | None = None

    def sees(self, tenant: str) -> bool:
        """Whether what belongs to the tenant exists for them."""
        return self.tenant is None or self.tenant == tenant


Authenticate = Callable[[Request], Awaitable[Principal]]
"""Finds out who asks. Raises ApiProblem (401) when that is nobody we know."""

EVERYBODY = Principal(name="anonymous", role=Role.ADMIN)


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


def needs(role: Role) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency that gives who asks, and refuses (403) who may not do this."""

    async def who(request: Request) -> Principal:
        found = await principal(request)
        if found.role < role:
            raise ApiProblem(403, "forbidden", f"{found.name} is no {role.name.lower()}")
        return found

    return who


Viewer = Annotated[Principal, Depends(needs(Role.VIEWER))]
Operator = Annotated[Principal, Depends(needs(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(needs(Role.ADMIN))]
