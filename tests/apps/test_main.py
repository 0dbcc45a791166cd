"""The command line as a whole: what it lists, what it imports, and when."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from noontide.apps.cli import main as cli

HEAVY = ("confluent_kafka", "aiokafka", "rich", "rocksdict", "yaml", "httpx")


def imported_by(*arguments: str) -> set[str]:
    """Names of the heavy modules that a command has imported when it ends."""
    program = (
        "import sys\n"
        "from noontide.apps.cli.main import main\n"
        f"main({list(arguments)!r}, standalone_mode=False)\n"
        f"print('imported:', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].removeprefix("imported:").split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["preview", "*/5 * * * *"], ["jobs", "--help"], ["runs", "list", "--help"]], ids=" ".join
)
def test_help_and_preview_import_no_client_and_no_tables(arguments: list[str]) -> None:
    assert imported_by(*arguments) == set()


def test_the_list_names_every_command_that_is_there() -> None:
    done = CliRunner().invoke(cli.main, ["--help"])
    assert done.exit_code == 0
    for name in ("demo", "dev", "scheduler", "jobs", "runs", "config", "preview", "topics"):
        assert f"\n  {name} " in done.output


def test_a_command_that_is_not_installed_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = cli._Entry("noontide.apps.cli.nothing_of_the_kind", "nothing", "Never shown.")
    monkeypatch.setitem(cli._COMMANDS, "nothing", entry)
    listed = CliRunner().invoke(cli.main, ["--help"])
    called = CliRunner().invoke(cli.main, ["nothing"])
    assert (listed.exit_code, "Never shown" in listed.output) == (0, False)
    assert called.exit_code == 2
    assert "No such command 'nothing'" in called.output


def test_version() -> None:
    done = CliRunner().invoke(cli.main, ["--version"])
    assert done.exit_code == 0
    assert done.output.startswith("noontide 0.")
