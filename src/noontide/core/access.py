"""Who may do what: a principal has a role and speaks for tenants; every action says which role it needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

ALL_TENANTS: Final = "*"


class Role(StrEnum):
    """Each role may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether this role may do what `needed` may."""
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


class Need(NamedTuple):
    """What an action asks of its principal. everywhere: it shows or changes what belongs to no single tenant."""

    role: Role
    everywhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who asks, once it is known who.

    name: for the audit, such as `token:ci-7f3a` or `user:ada@example.com`; also what rate limits count by.
    tenants: whose jobs, runs and dead letters there are for it; "*" = everybody's.
    requests_per_second: its own rate; None = that of the installation.
    """

    name: str
    role: Role
    tenants: frozenset[str]
    requests_per_second: int | None = None

    @property
    def everywhere(self) -> bool:
        """Whether every tenant is its own."""
        return ALL_TENANTS in self.tenants

    @property
    def tenant(self) -> str | None:
        """Its tenant when there is exactly one: what it asks for is meant for that one."""
        return next(iter(self.tenants)) if len(self.tenants) == 1 and not self.everywhere else None

    def sees(self, tenant: str) -> bool:
        """Whether what belongs to a tenant exists for it."""
        return tenant in self.tenants or self.everywhere

    def may(self, need: Need) -> bool:
        """Whether it may do what needs this."""
        return self.role.covers(need.role) and (self.everywhere or not need.everywhere)


def within(asked: Collection[str], allowed: frozenset[str]) -> bool:
    """Whether all of these tenants are among those: nobody gives away more than it has."""
    return ALL_TENANTS in allowed or all(tenant in allowed for tenant in asked)
