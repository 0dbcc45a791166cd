"""Style as a test: sizes, names, and what must not be in the repository."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
SHORT_FUNCTION_LINES = 25
SHORT_FUNCTIONS_SHARE = 0.90

NOTHING_SAYING = {"manager", "managers", "util", "utils", "helper", "helpers", "base", "bases"}
NOTHING_SAYING_PREFIXES = ("process_", "handle_")
TOP_LEVEL = {
    "LICENSE", "README.md", "deploy", "docker-compose.yml", "docs", "examples", "mkdocs.yml", "pyproject.toml",
    "requirements.lock", "scripts", "specs", "src", "tests", "topics",
}  # fmt: skip
MACHINE_PATHS = re.compile(r"(?<![\w.$~{}/-])/(?:home|root|Users|work)/\w")
REGISTRY_HOSTS = re.compile(r"pypi\.org|pythonhosted\.org|maven\.org|maven\.apache\.org|sonatype\.", re.IGNORECASE)


class Function(NamedTuple):
    where: str
    name: str
    lines: int


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCES.rglob("*.py"))}


def functions() -> Iterator[Function]:
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield Function(where, node.name, code_lines(node))


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring: explaining costs nothing."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def words(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


@cache
def tracked_files() -> tuple[Path, ...]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(path for name in listing.split("\0") if name and (path := ROOT / name).is_file())


def mentions(pattern: re.Pattern[str]) -> list[str]:
    """`file:line: text` for each match in a tracked text file; this file names what it looks for."""
    found = []
    for path in tracked_files():
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_bytes().decode("utf-8", errors="replace").splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return found


def test_modules_are_short() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in modules()}
    long = [f"{path.relative_to(ROOT)}: {lines}" for path, lines in lengths.items() if lines > MODULE_LINES_MAX]
    assert long == []


def test_no_function_is_long() -> None:
    assert [f"{each.where} {each.name}: {each.lines}" for each in functions() if each.lines > FUNCTION_LINES_MAX] == []


def test_most_functions_are_short() -> None:
    found = list(functions())
    longer = [f"{each.where} {each.name}: {each.lines}" for each in found if each.lines >= SHORT_FUNCTION_LINES]
    assert len(longer) <= len(found) * (1 - SHORT_FUNCTIONS_SHARE), longer


def test_names_of_modules_and_classes_say_something() -> None:
    empty = [str(path.relative_to(ROOT)) for path in modules() if words(path.stem) & NOTHING_SAYING]
    for path, tree in modules().items():
        classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        empty += [
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            for node in classes
            if words(node.name) & NOTHING_SAYING
        ]
    assert empty == []


def test_names_of_functions_say_something() -> None:
    assert [f"{f.where} {f.name}" for f in functions() if f.name.lstrip("_").startswith(NOTHING_SAYING_PREFIXES)] == []


def test_words_of_a_name() -> None:
    assert words("LeaseKeeper") == {"lease", "keeper"}
    assert words("lease_util") & NOTHING_SAYING == {"util"}
    assert words("HTTPBaseTarget") & NOTHING_SAYING == {"base"}
    assert words("database") & NOTHING_SAYING == set()


def test_docstrings_do_not_count_as_code() -> None:
    (node,) = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n').body
    assert isinstance(node, ast.FunctionDef)
    assert code_lines(node) == 2


def test_nothing_else_lies_at_the_top() -> None:
    top = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert {name for name in top if not name.startswith(".")} - TOP_LEVEL == set()


def test_no_path_of_somebodys_machine() -> None:
    assert mentions(MACHINE_PATHS) == []


def test_no_address_of_a_package_registry() -> None:
    assert mentions(REGISTRY_HOSTS) == []
