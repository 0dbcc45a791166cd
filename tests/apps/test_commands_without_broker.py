"""What the commands refuse before they talk to anybody, and what they say when nobody answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from noontide.adapters.kafka import foreign_topics
from noontide.apps.cli.main import main

NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for longer than a moment."""
    monkeypatch.setattr(foreign_topics.check_reachable, "__kwdefaults__", {"timeout_s": 0.3})
    monkeypatch.setenv("NOONTIDE_KAFKA_BOOTSTRAP", NOBODY)


def noontide(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def test_nothing_is_sent_unless_all_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "id: good\nschedule: '0 6 * * *'\ntarget: kafka://orders\n"
        "---\nid: bad\nschedule:\n  cron: 61 * * * *\ntarget: kafka://orders\nlabels: 3\n"
    )
    done = noontide("jobs", "put", str(file))
    assert done.exit_code == 1
    assert f"{file}:7: /schedule" in done.stderr
    assert f"{file}:9: /labels" in done.stderr
    assert "1 definition of 2 cannot be accepted; nothing was sent" in done.stderr
    assert NOBODY not in done.stderr


def test_valid_definitions_find_no_broker() -> None:
    done = noontide("jobs", "put", "-", stdin='{"id":"a","run_at":"2026-12-24T18:00:00Z","target":"kafka://orders"}')
    assert done.exit_code == 3
    assert NOBODY in done.stderr
    assert "noontide dev" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    "arguments",
    [["jobs", "list"], ["runs", "list"], ["runs", "watch"], ["config", "list"], ["jobs", "pause", "x"]],
    ids=" ".join,
)
def test_nobody_answers(arguments: list[str]) -> None:
    done = noontide(*arguments)
    assert done.exit_code == 3
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["jobs", "add", "--topic", "orders"], "give one of --every, --cron, --at and --in"),
        (["jobs", "add", "--every", "5s", "--cron", "* * * * *", "--topic", "x"], "give one of --every"),
        (["jobs", "add", "--every", "5s"], "give one of --topic and --target"),
        (["jobs", "add", "--every", "5s", "--target", "handler:x", "--key", "k"], "--key belongs to --topic"),
        (["jobs", "add", "--every", "5 s", "--topic", "x"], "is not a duration such as 5s"),
        (["jobs", "add", "--every", "5s", "--topic", "x", "--payload", "{"], "--payload is not JSON"),
        (["jobs", "delete", "a b"], "is not a job id"),
        (["runs", "cancel", "nothing"], "is not a run id"),
        (["config", "list", "people"], "'people' is not one of tenant"),
        (["jobs", "put"], "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_exit_code_2(arguments: list[str], said: str) -> None:
    done = noontide(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("target/orders", '{"topic": 3}', "/topic"),
        ("calendar/x", '{"dates": ["2026-02-30"]}', "/dates"),
        ("people/x", "{}", "is not one of tenant/<name>"),
        ("meta", '{"slots": 2}', "noontide topics apply"),
        ("tenant/x", "no-such-file.json", "No such file"),
    ],
)
def test_configuration_is_checked_first(key: str, value: str, said: str) -> None:
    done = noontide("config", "put", key, value)
    assert done.exit_code == 1
    assert said in done.stderr


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing\n")
    done = noontide("jobs", "put", str(file))
    assert done.exit_code == 1
    assert "no definitions in" in done.stderr


def test_a_command_that_needs_kafka_says_so_when_an_api_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    named = noontide("tokens", "list", "--server", "http://127.0.0.1:1")
    assert (named.exit_code, "needs Kafka: leave --server out" in named.stderr) == (2, True)
    monkeypatch.setenv("NOONTIDE_SERVER", "http://127.0.0.1:1")
    around = noontide("tokens", "list")
    assert around.exit_code == 3
    assert f"NOONTIDE_SERVER means nothing to this command, which asks Kafka at {NOBODY}" in around.stderr


def test_an_option_that_says_nothing_is_one_line_over_the_api_too() -> None:
    done = noontide("runs", "watch", "--since", "yesterday", "--server", "http://127.0.0.1:1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: --since: 'yesterday' is not one")
