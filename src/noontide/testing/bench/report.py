"""What a bench prints: one line of JSON for programs, a short table for people; progress goes to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

Figures = Mapping[str, object]


def say(text: str) -> None:
    """Progress, over the line before it where that is a terminal."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"bench: {text:<70}", end=end, file=sys.stderr, flush=True)


def one_line(figures: Figures) -> str:
    """Figures as one line of JSON."""
    return json.dumps(_rounded(figures), separators=(",", ":"))


def table(name: str, figures: Figures) -> str:
    """Figures for people, nested ones indented."""
    return "\n".join([name, *_lines(figures, indent=2)])


def _lines(figures: Figures, indent: int) -> list[str]:
    lines = []
    for key, value in _rounded(figures).items():
        if isinstance(value, Mapping):
            lines += [f"{' ' * indent}{key}", *_lines(value, indent + 2)]
        else:
            text = f"{value:,}" if isinstance(value, int | float) else str(value)
            lines.append(f"{' ' * indent}{key:<{34 - indent}}{text:>14}")
    return lines


def _rounded(figures: Figures) -> dict[str, object]:
    return {key: _round(value) for key, value in figures.items()}


def _round(value: object) -> object:
    match value:
        case Mapping():
            return _rounded(value)
        case float() if abs(value) >= 100:
            return round(value)
        case float():
            return round(value, 3)
        case _:
            return value
