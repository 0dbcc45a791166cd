"""`--log-level` and `--log-format`: the same for every process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import click

_LIBRARIES = {
    **dict.fromkeys(("aiokafka", "kafka"), logging.CRITICAL),
    **dict.fromkeys(("httpx", "httpcore", "hpack", "asyncio", "faust", "mode"), logging.WARNING),
}
LOG_FORMAT_VARIABLE = "NOONTIDE_LOG_FORMAT"


def _note_format(_ctx: click.Context, _parameter: click.Parameter, value: str) -> None:
    os.environ[LOG_FORMAT_VARIABLE] = value  # processes that this one starts log likewise


_log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar=LOG_FORMAT_VARIABLE,
    show_envvar=True,
    expose_value=False,
    callback=_note_format,
    help="Lines of text, or JSON objects (docs/reference/logs.md).",
)
_log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is logged to standard error.",
)


def log_level_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--log-level` and `--log-format`."""
    return _log_level_option(_log_format_option(command))


def log_to_stderr(level: str, *, with_process: bool = False) -> None:
    """Our own log lines, where wanted with the process's id, and from INFO on those of handlers.

    The client libraries only speak of errors: what they call debugging shows records and credentials.
    """
    process = "[%(process)d] " if with_process else ""
    logging.basicConfig(
        level=level.upper() if level != "debug" else logging.INFO,
        stream=sys.stderr,
        format=f"%(asctime)s {process}%(levelname)-7s %(name)s  %(message)s",
    )
    if os.environ.get(LOG_FORMAT_VARIABLE) == "json":
        from noontide.apps.log_events import JsonLines

        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines())
    logging.getLogger("noontide").setLevel(level.upper())
    for library, least in _LIBRARIES.items():
        logging.getLogger(library).setLevel(least)
