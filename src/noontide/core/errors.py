"""The error tree of the domain: what can be wrong with something a person or a service said.

NoontideError
├── InvalidDefinition   one or more fields of a definition, or a request as a whole, cannot be accepted
│   ├── NotThere        there is no such job or run, or it is somebody else's
│   ├── Conflict        the id or the idempotency key is taken
│   ├── StaleVersion    the job is not in the version that was asked for
│   └── OverQuota       the tenant may have no more of this
└── Fenced              another owner holds the slot now (see ports.record_log)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class NoontideError(Exception):
    """Root of every error this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input.

    pointer: JSON pointer (RFC 6901) of the field, "" for the document as a whole.
    message: a sentence for people, naming the accepted form where there is one.
    """

    pointer: str
    message: str

    def __str__(self) -> str:
        return f"{self.pointer or '(document)'}: {self.message}"


class Refusal(StrEnum):
    """Why something is refused, for programs; the problems say it for people."""

    INVALID = "invalid"
    TOO_LARGE = "too-large"
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"
    STALE = "stale-version"
    QUOTA = "quota"


class InvalidDefinition(NoontideError, ValueError):
    """A definition or one of its fields is refused; `problems` is never empty."""

    refusal: ClassVar[Refusal] = Refusal.INVALID

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems

    @classmethod
    def of(cls, pointer: str, message: str) -> InvalidDefinition:
        """The common case of one problem."""
        return cls((Problem(pointer, message),))


class NotThere(InvalidDefinition):
    """There is no such job or run for the sender of the request."""

    refusal = Refusal.NOT_FOUND


class Conflict(InvalidDefinition):
    """The id is taken, or the idempotency key was used for something else."""

    refusal = Refusal.CONFLICT


class StaleVersion(InvalidDefinition):
    """The job is not in the version that `if-match` names."""

    refusal = Refusal.STALE


class OverQuota(InvalidDefinition):
    """The tenant may have no more of this; the problem names the quota."""

    refusal = Refusal.QUOTA
