"""What commands show: tables for people, JSON Lines for programs. rich is imported when there is a table to draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click
import orjson

from noontide.core.instants import format_instant

PIPE_WIDTH = 2_000
"""Columns where nobody looks at a screen: `grep` and `less` want lines whole."""


def show_json(value: object) -> None:
    """One line of JSON on standard output."""
    click.echo(orjson.dumps(value).decode())


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """A table without borders; `empty` when there are no rows."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    if table.row_count:
        console = Console()
        if not console.is_terminal:
            console.width = PIPE_WIDTH
        console.print(table)
    else:
        click.echo(empty)


def show_pairs(pairs: Mapping[str, str]) -> None:
    """Names and values, one pair a line, the values aligned."""
    width = max(map(len, pairs))
    for name, value in pairs.items():
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}")


def note(text: str) -> None:
    """A line for people, on standard error, so that it never mixes with data."""
    click.echo(text, err=True)


def utc(instant_ms: int | None) -> str:
    """An instant for people: UTC without a fraction that is zero; nothing for None."""
    if instant_ms is None:
        return ""
    text = format_instant(instant_ms)
    return f"{text[:-5]}Z" if text.endswith(".000Z") else text


def utc_second(instant_ms: int | None) -> str:
    """An instant as narrow as a column wants it: `2026-12-24 18:00:00`, UTC."""
    return "" if instant_ms is None else format_instant(instant_ms)[:19].replace("T", " ")


def plural(count: int, word: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
