"""The documentation: the site builds without a warning, and every command in it is one that there is."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from noontide.apps.cli.main import main

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "CHANGELOG.md"), ROOT / "README.md"]
_BLOCK = re.compile(r"^( *)```(?:sh|shell|bash|console)?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def commands(text: str) -> Iterator[str]:
    """Lines of code blocks that begin with `noontide`, continued ones joined."""
    for block in _BLOCK.findall(text):
        for line in block[1].replace("\\\n", " ").splitlines():
            if line.strip().startswith("noontide "):
                yield line.strip()


FOUND = [(page, line) for page in PAGES for line in commands(page.read_text("utf-8"))]


@pytest.mark.parametrize("page, line", FOUND, ids=[f"{page.name}: {line[:60]}" for page, line in FOUND])
def test_a_command_in_the_docs_exists_with_its_options(page: Path, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = main
    with click.Context(main) as context:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
    known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)} | {"--help", "-h"}
    used = {word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]+(=.*)?", word)}
    assert used - known == set(), f"{page.name}: {line}"


def test_there_are_commands_to_look_at() -> None:
    assert len(FOUND) > 20


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = {"NO_MKDOCS_2_WARNING": "1", "PATH": ""}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120, env=quiet)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr + done.stdout
    assert (tmp_path / "site" / "how-to" / "deploy.html").exists()
