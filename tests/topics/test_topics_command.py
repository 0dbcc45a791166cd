"""`noontide topics describe` and `docs`: what needs no broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from noontide.apps.cli.topics import topics
from noontide.apps.docs_topics import field_rows, topic_section, topics_page
from noontide.records.topics import load_catalogue

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "topics.md"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(topics, list(arguments), env={"COLUMNS": "400"})


def test_the_reference_is_current() -> None:
    assert REFERENCE.read_text("utf-8") == topics_page(load_catalogue()), (
        "noontide topics docs --write docs/reference/topics.md"
    )
    assert run("docs", "--write", str(REFERENCE), "--check").exit_code == 0


def test_docs_are_written_and_a_stale_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "topics.md"
    assert run("docs", "--write", str(page), "--check").exit_code == 1
    assert run("docs", "--write", str(page)).exit_code == 0
    assert page.read_text("utf-8") == run("docs").output
    page.write_text(page.read_text("utf-8") + "x", "utf-8")
    stale = run("docs", "--write", str(page), "--check")
    assert stale.exit_code == 1
    assert "is not current" in stale.output
    assert run("docs", "--check").exit_code == 2  # a usage error


def test_the_page_has_every_topic_setting_header_and_field() -> None:
    page = topics_page(load_catalogue())
    for file in load_catalogue():
        section = topic_section(file)
        assert section in page
        assert f"## `{file.template}`" in section
        for setting in file.config:
            assert f"| `{setting.name}` | `{setting.value}` | {setting.why.replace('|', chr(92) + '|')} |" in section
        for header in file.headers:
            assert f"| `{header.name}` | " in section
        for example in file.examples:
            assert example.about in section


def test_nested_fields_are_named_by_their_path() -> None:
    rows = {name: kind for name, kind, _description, _since in field_rows(load_catalogue()["jobs"].value)}
    assert rows["id"] == "string, required"
    assert rows["target.http.url"] == "string, required"
    assert rows["retry.backoff"] == "string or list of string"
    assert rows["timing.window"] == "string, required"
    assert rows["dst.gap"] == "`next_valid`, `shift`, `skip`"


def test_describe_lists_all_topics() -> None:
    output = run("describe").output
    assert all(file.template in output for file in load_catalogue())


@pytest.mark.parametrize("name", ["requests", "requests.<domain>", "requests.orders", "noontide.requests.api"])
def test_describe_shows_one_topic_in_full(name: str) -> None:
    result = run("describe", name)
    assert result.exit_code == 0
    file = load_catalogue()["requests"]
    for expected in (file.purpose, file.key, file.key_why, *file.written_by, *file.read_by, "if-match", "run_at"):
        assert expected in result.output
    assert all(setting.why in result.output for setting in file.config)


def test_describe_as_json_has_the_schema() -> None:
    (document,) = json.loads(run("describe", "jobs", "--json").output)
    assert document["value"] == load_catalogue()["jobs"].value
    assert document["config"]["cleanup.policy"]["value"] == "compact"
    assert len(json.loads(run("describe", "--json").output)) == len(list(load_catalogue()))


def test_an_unknown_topic_is_one_line() -> None:
    result = run("describe", "nope")
    assert result.exit_code == 1
    assert "Error: no topic 'nope'; known: agents-state, agents-told, alerts, audit" in result.output


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--kafka-config", "none.properties"], 2, "does not exist"),
        (["--bootstrap", " "], 1, "/bootstrap: must be a comma-separated list"),
        (["--partitions", "0"], 2, "--partitions"),
        (["--partitions", "4", "--slots", "5"], 1, "slots must lie in 1 .. 4"),
        (["--prefix", "a b", "--partitions", "4", "--slots", "2"], 1, "prefix 'a b'"),
    ],
)
def test_bad_options_are_named(arguments: list[str], code: int, message: str) -> None:
    result = run("plan", *arguments)
    assert result.exit_code == code
    assert message in result.output
