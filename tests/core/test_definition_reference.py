"""The reference page says what the code does: its examples, its fields, its numbers."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from noontide.core.definition import DefinitionContext, merge_patch, parse_definition
from noontide.core.errors import InvalidDefinition
from noontide.core.field_table import known_names
from noontide.core.limits import DEFAULT_LIMITS
from noontide.core.target_fields import METHODS, RESERVED_HEADERS

PAGE = (Path(__file__).parents[2] / "docs/reference/job-definition.md").read_text()
EXAMPLES = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
CONTEXT = DefinitionContext(key=None, tenant=None, created_ms=0, new_id="made-up", unknown_fields="refuse")


@pytest.mark.parametrize("example", [text for text in EXAMPLES if '"target"' in text])
def test_examples_are_accepted(example: str) -> None:
    definition = parse_definition(example.encode(), context=CONTEXT)
    assert parse_definition(definition.document, context=CONTEXT) == definition


def test_the_patch_of_the_page_applies() -> None:
    (patch,) = [text for text in EXAMPLES if '"target"' not in text]
    document = parse_definition(EXAMPLES[0].encode(), context=CONTEXT).document
    patched = parse_definition(merge_patch(document, patch.encode()), context=CONTEXT).job
    assert (patched.paused, patched.timeout_ms) == (True, 60_000)


def test_the_page_lists_the_fields_that_exist() -> None:
    table = PAGE.partition("## Fields")[2].partition("### Schedule")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == {name for name in known_names(DEFAULT_LIMITS) if not name.endswith("_sec")}


def test_the_problems_of_the_page_are_what_is_said() -> None:
    wrong = {
        "schedule": "0 6 * * *", "priority": 10, "misfire": "later", "timeout": "P1M",
        "target": {"http": {"url": "ftp://example.org"}},
    }  # fmt: skip
    with pytest.raises(InvalidDefinition) as refused:
        parse_definition(orjson.dumps(wrong), context=CONTEXT)
    shown = [line.split(maxsplit=1) for line in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()]
    assert shown == [[problem.pointer, problem.message] for problem in refused.value.problems]


def test_headers_and_methods_are_named() -> None:
    assert all(f"`{method}`" in PAGE for method in METHODS)
    text = PAGE.lower()
    assert all(f"`{header}`" in text for header in RESERVED_HEADERS if not header.startswith("proxy-"))
