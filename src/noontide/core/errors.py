"""The error tree of the domain: what can be wrong with something a person or a service said.

NoontideError
├── InvalidDefinition   one or more fields of a definition cannot be accepted
└── Fenced              another owner holds the slot now (see ports.record_log)
"""

from __future__ import annotations

from dataclasses import dataclass


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


class InvalidDefinition(NoontideError, ValueError):
    """A definition or one of its fields is refused; `problems` is never empty."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems

    @classmethod
    def of(cls, pointer: str, message: str) -> InvalidDefinition:
        """The common case of one problem."""
        return cls((Problem(pointer, message),))
