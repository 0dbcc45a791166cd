"""Definitions in files and on standard input: YAML, JSON and JSON Lines, each with the place it came from.

The text of a JSON source is passed on byte for byte. YAML is read by the rules of YAML 1.2 (`on` is a word, `1:30` is
text, `2026-12-24` is text), because a definition is JSON in the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from noontide.apps.cli.common import Fault

if TYPE_CHECKING:
    import yaml

_YAML_SUFFIXES: Final = (".yaml", ".yml")
_NUMBER_OF_STEP = re.compile(r"0|[1-9]\d*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One definition as it was found. text: JSON; place: `jobs.yaml:12`, `jobs.json[3]`; node: its YAML, if it was."""

    text: bytes
    place: str
    node: Any = None

    def place_of(self, pointer: str) -> str:
        """Where the field is, as exactly as the source tells: the line of a YAML value, else the place of the whole."""
        if self.node is None:
            return self.place
        return f"{self.place.rpartition(':')[0]}:{_line_of(self.node, pointer)}"


def read_sources(path: str) -> list[Source]:
    """All definitions of a file, `-` being standard input. Raises Fault naming file and line when it cannot be read."""
    name = "stdin" if path == "-" else path
    try:
        data = _stdin() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Fault(f"{path}: {error.strerror}") from error
    return list(split(data, name=name))


def split(data: bytes, *, name: str) -> Iterator[Source]:
    """The definitions in some bytes: YAML by the name's suffix, else by what they begin with."""
    if Path(name).suffix in _YAML_SUFFIXES:
        yield from _yaml(data, name)
        return
    begin = data.lstrip()[:1]
    if begin == b"[":
        yield from _array(data, name)
    elif begin == b"{" and _is_lines(data):
        yield from _lines(data, name)
    elif begin == b"{" or Path(name).suffix == ".json":
        yield Source(text=data.strip(), place=name)
    else:
        yield from _yaml(data, name)


def _stdin() -> bytes:
    import sys

    return sys.stdin.buffer.read()


def _is_lines(data: bytes) -> bool:
    """Whether the first line is a JSON object of its own and more follows."""
    first, newline, rest = data.lstrip().partition(b"\n")
    if not newline or not rest.strip():
        return False
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return False
    return True


def _lines(data: bytes, name: str) -> Iterator[Source]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if text := line.strip():
            yield Source(text=text, place=f"{name}:{number}")


def _array(data: bytes, name: str) -> Iterator[Source]:
    try:
        orjson.loads(data)
        texts = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (orjson.JSONDecodeError, msgspec.DecodeError) as error:
        raise Fault(f"{name}: not JSON: {error}") from error
    for number, text in enumerate(texts):
        yield Source(text=bytes(text), place=f"{name}[{number}]")


def _yaml(data: bytes, name: str) -> Iterator[Source]:
    import yaml

    try:
        loader = _loader_class()(data)
        while loader.check_node():
            for node in _definitions(loader.get_node()):
                text = orjson.dumps(loader.construct_document(node), option=orjson.OPT_NON_STR_KEYS)
                yield Source(text=text, place=f"{name}:{node.start_mark.line + 1}", node=node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise Fault(f"{name}:{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise Fault(f"{name}: not YAML: {error}") from error
    except TypeError as error:
        raise Fault(f"{name}: has a value that JSON cannot say: {error}") from error


def _definitions(node: yaml.Node | None) -> Iterator[yaml.Node]:
    """One definition, a list of them, or such a list under `jobs`; nothing for an empty document."""
    import yaml

    inner = node
    if isinstance(node, yaml.MappingNode):
        inner = next((value for key, value in node.value if key.value == "jobs"), node)
    if isinstance(inner, yaml.SequenceNode):
        yield from inner.value
    elif inner is not None and inner.tag != "tag:yaml.org,2002:null":
        yield inner


@cache
def _loader_class() -> type[yaml.SafeLoader]:
    """A safe loader with the scalars of YAML 1.2: what JSON has, and nothing that looks like text."""
    import yaml

    class Loader(yaml.SafeLoader):
        """With the resolvers below only."""

    Loader.yaml_implicit_resolvers = {}
    scalars = (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
        ("int", r"[-+]?[0-9]+", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
        ("merge", r"<<", "<"),
    )
    for tag, form, first in scalars:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{form})$"), list(first))
    Loader.add_constructor("tag:yaml.org,2002:int", _number(int))
    Loader.add_constructor("tag:yaml.org,2002:float", _number(float))
    return Loader


def _number(kind: Callable[[str], int | float]) -> Callable[[yaml.SafeLoader, Any], int | float]:
    return lambda loader, node: kind(str(loader.construct_scalar(node)))


def _line_of(node: yaml.Node, pointer: str) -> int:
    """Line of the value a JSON pointer names, or of the closest thing above it that is there."""
    line = node.start_mark.line + 1
    for step in pointer.split("/")[1:]:
        found = _child(node, step.replace("~1", "/").replace("~0", "~"))
        if found is None:
            break
        node, line = found
    return line


def _child(node: yaml.Node, step: str) -> tuple[yaml.Node, int] | None:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return value, key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode) and _NUMBER_OF_STEP.fullmatch(step) and int(step) < len(node.value):
        child = node.value[int(step)]
        return child, child.start_mark.line + 1
    return None
