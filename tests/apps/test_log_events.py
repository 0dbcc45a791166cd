"""Every text that is logged has an event, which the reference names; and lines of JSON."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from noontide.apps.log_events import JsonLines, events, page

SOURCE = Path(__file__).parents[2] / "src" / "noontide"
PAGE = SOURCE.parents[1] / "docs" / "reference" / "logs.md"
FOR_PEOPLE_ONLY = {"testing", "examples", "demo"}
CALLS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def logged() -> Iterator[tuple[str, ast.Call]]:
    """Where something is logged, and the call."""
    for path in sorted(SOURCE.rglob("*.py")):
        if FOR_PEOPLE_ONLY.isdisjoint(path.relative_to(SOURCE).parts):
            calls = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
            yield from ((f"{path.name}:{call.lineno}", call) for call in calls if _logs(call.func))


def _logs(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    return function.attr in CALLS and function.value.id in ("log", "_log")


FOUND = list(logged())


@pytest.mark.parametrize("place, call", FOUND, ids=[place for place, _ in FOUND])
def test_every_text_has_an_event_with_its_parts_named(place: str, call: ast.Call) -> None:
    assert isinstance(call.func, ast.Attribute)
    text, *parts = call.args[1:] if call.func.attr == "log" else call.args
    assert isinstance(text, ast.Constant), f"{place}: the text must be written out"
    event = events().get(str(text.value))
    assert event is not None, f"{place}: {text.value!r} is not in log_events.yaml"
    given = sum(2 if isinstance(part, ast.Starred) else 1 for part in parts)
    assert len(event.fields) == given == str(text.value).count("%"), place


def test_no_event_is_listed_that_nobody_logs() -> None:
    texts = {argument.value for _, call in FOUND for argument in call.args[:2] if isinstance(argument, ast.Constant)}
    assert events().keys() <= texts
    names = [event.name for event in events().values()]
    assert len(names) == len(set(names))


def test_the_page_is_fresh_and_names_every_event() -> None:
    assert PAGE.read_text("utf-8") == page()
    assert all(f"`{event.name}`" in page() for event in events().values())


@pytest.fixture
def lines() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("noontide.test-of-lines")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield logger, written
    logger.removeHandler(handler)


def test_a_line_has_the_parts_by_name(lines: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = lines
    logger.info("slot %d: owned after %d ms (%s)", 3, 17, ["restored"])
    line = json.loads(written.getvalue())
    assert line["at"].endswith("Z")
    assert {name: line[name] for name in ("level", "event", "slot", "took_ms", "restored", "message")} == {
        "level": "info", "event": "slot_owned", "slot": 3, "took_ms": 17, "restored": "['restored']",
        "message": "slot 3: owned after 17 ms (['restored'])",
    }  # fmt: skip


def test_what_others_log_is_a_message_in_one_line(lines: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = lines
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("said by\na handler", extra={"run_id": "a:1", "attempt": 2})
    (text,) = written.getvalue().splitlines()
    line = json.loads(text)
    assert (line["event"], line["run_id"], line["attempt"]) == ("message", "a:1", 2)
    assert line["exception"].endswith("ValueError: two\nlines")
