"""How commands end when something is wrong: one line on standard error, and an exit code."""

from __future__ import annotations

from typing import Final

import click

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
NO_ANSWER: Final = 3


class Fault(click.ClickException):
    """Something a person can put right."""

    def __init__(self, message: str, *, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # click reads it from the instance
