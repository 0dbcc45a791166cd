"""What processes log, by the text of the call: the name of the event, and what the parts of the text are called.

Lines are texts for people; `--log-format json` writes one object per line with these names in it. A test holds that
every call is in `log_events.yaml`, and the reference page is written from it: `python -m noontide.apps.log_events`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

import orjson
import yaml

from noontide.core.instants import format_instant


class LogEvent(NamedTuple):
    """name: of the event. fields: names of the parts, in their order. meaning: for people."""

    name: str
    fields: tuple[str, ...]
    meaning: str


OTHER: Final = "message"
"""The event of what libraries and handlers log."""


@cache
def events() -> Mapping[str, LogEvent]:
    """By text, from `log_events.yaml`."""
    listed = yaml.safe_load(resources.files(__package__).joinpath("log_events.yaml").read_text("utf-8"))
    return {each["text"]: LogEvent(each["event"], tuple(each["fields"]), each["meaning"]) for each in listed}


class JsonLines(logging.Formatter):
    """One object per line: at, level, event, the event's fields, message, logger, process, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        event = events().get(record.msg) if record.name.startswith("noontide") else None
        line: dict[str, object] = {
            "at": format_instant(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "event": OTHER if event is None else event.name,
            **_fields(event, record.args),
            "message": record.getMessage(),
            "logger": record.name,
            "process": record.process,
        }
        for name in ("run_id", "attempt"):  # what a handler's `ctx.log` adds
            if hasattr(record, name):
                line[name] = getattr(record, name)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def _fields(event: LogEvent | None, args: object) -> dict[str, object]:
    if event is None or not isinstance(args, Sequence):
        return {}
    return {
        name: value if isinstance(value, int | float) else str(value)
        for name, value in zip(event.fields, args, strict=False)
    }


def page() -> str:
    """The reference of logs."""
    lines = [
        "# Logs",
        "",
        "Processes log to standard error, one line per event. `--log-format json` (`NOONTIDE_LOG_FORMAT=json`)",
        "writes each as one JSON object: `at` (RFC 3339, UTC), `level`, `event`, the fields of the event,",
        "`message` (the text), `logger`, `process` (its id), and `exception` where there is one. `--log-level",
        "debug` adds ours; what client libraries call debugging is never logged, since it shows records and",
        "credentials. Whatever is not in this list, such as what handlers log, is the event `message`; what a",
        "handler logs with `ctx.log` has `run_id` and `attempt`.",
        "",
        "| event | fields | meaning |",
        "| --- | --- | --- |",
    ]
    for event in sorted(events().values()):
        fields = ", ".join(f"`{name}`" for name in event.fields)
        lines.append(f"| `{event.name}` | {fields} | {event.meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
