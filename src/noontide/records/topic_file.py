"""One file of topics/: its shape, and the check that a YAML document has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from noontide.core.errors import NoontideError

_PARAMETER = re.compile(r"<([a-z_]+)>")
_PARTITIONS = re.compile(r"(\d+|partitions|slots|k|history)(\*(\d+|partitions|slots|k|history))*")
_REQUIRED = ("name", "purpose", "key", "written_by", "read_by", "partitions", "config", "value", "examples", "sinks")
_FIELDS = (*_REQUIRED, "headers", "tombstone", "by_key", "by_kind")

Schema = Mapping[str, object]


class TopicError(NoontideError, ValueError):
    """A topic file, a topic name or a layout that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One broker-side configuration of a topic and the reason for it; `value` is text, as brokers report it."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderField:
    """A header of the records of a topic."""

    name: str
    description: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A record as it may stand on the topic; `value` None is a tombstone."""

    about: str
    key: str | None
    headers: Mapping[str, str]
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Somewhere the topic may be copied to, and how."""

    to: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFile:
    """One file of topics/, checked.

    topic: short name, the file's stem, such as `requests`.
    template: name without prefix, with parameters, such as `requests.<domain>`.
    partitions: a number, or a product over `partitions`, `slots`, `k` (partitions of `runs.<lane>` per slot) and
        `history` (the most slots there ever were).
    tombstone: what a null value means, None where null values do not occur.
    by_key, by_kind: name of the definition in the schema for the part of the key before `/`, or for header `kind`.
    """

    topic: str
    template: str
    purpose: str
    key: str
    key_why: str
    written_by: tuple[str, ...]
    read_by: tuple[str, ...]
    partitions: str
    config: tuple[Setting, ...]
    headers: tuple[HeaderField, ...]
    tombstone: str | None
    by_key: Mapping[str, str]
    by_kind: Mapping[str, str]
    value: Schema
    examples: tuple[Example, ...]
    sinks: tuple[Sink, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the template's parameters, such as ("domain",)."""
        return tuple(_PARAMETER.findall(self.template))

    def schema_for(self, *, key: str | None = None, kind: str | None = None) -> Schema:
        """The JSON Schema of a value under this key or header `kind`; the whole schema where it does not depend."""
        name = self.by_key.get((key or "").split("/")[0]) or self.by_kind.get(kind or "define")
        return self.value if name is None else {"$ref": f"#/$defs/{name}", "$defs": self.value["$defs"]}


class _Document:
    """A mapping of a topic file, read field by field; errors name file and field."""

    def __init__(self, where: str, content: object) -> None:
        if not isinstance(content, dict):
            raise TopicError(f"{where}: must be a mapping, not {type(content).__name__}")
        self.where, self.content = where, content

    def check_fields(self, *, known: Iterable[str], required: Iterable[str]) -> None:
        """Raise TopicError for a field that is missing, or that nobody reads."""
        if missing := [name for name in required if name not in self.content]:
            raise TopicError(f"{self.where}: {', '.join(missing)} missing")
        if unknown := sorted(set(self.content) - set(known)):
            raise TopicError(f"{self.where}: unknown field {', '.join(map(str, unknown))}")

    def text(self, name: str) -> str:
        """A string that is not blank, without the line break a folded block ends with."""
        value = self.content.get(name)
        if not isinstance(value, str) or not value.strip():
            raise TopicError(f"{self.where}.{name}: must be text, not {value!r}")
        return value.strip()

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings that is not empty."""
        value = self.content.get(name)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise TopicError(f"{self.where}.{name}: must be a list of texts, not {value!r}")
        return tuple(value)

    def part(self, name: str) -> _Document:
        """A mapping inside; an empty one when absent."""
        return _Document(f"{self.where}.{name}", self.content.get(name, {}))

    def parts(self, name: str) -> list[_Document]:
        """A list of mappings; an empty one when absent."""
        value = self.content.get(name, [])
        if not isinstance(value, list):
            raise TopicError(f"{self.where}.{name}: must be a list, not {value!r}")
        return [_Document(f"{self.where}.{name}[{number}]", item) for number, item in enumerate(value)]

    def names(self) -> dict[str, str]:
        """The mapping itself, when every value is text."""
        return {name: self.text(name) for name in self.content}


def broker_text(value: object) -> str:
    """A YAML scalar as brokers write it: true, 0.2, 604800000, compact."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _setting(name: str, document: _Document) -> Setting:
    document.check_fields(known=("value", "why"), required=("value", "why"))
    value = document.content["value"]
    if not isinstance(value, str | bool | int | float):
        raise TopicError(f"{document.where}.value: must be a scalar, not {value!r}")
    return Setting(name=name, value=broker_text(value), why=document.text("why"))


def _header(name: str, document: _Document) -> HeaderField:
    document.check_fields(known=("description", "since"), required=("description", "since"))
    return HeaderField(name=name, description=document.text("description"), since=document.text("since"))


def _example(document: _Document) -> Example:
    document.check_fields(known=("about", "key", "headers", "value"), required=("about", "key", "value"))
    key = None if document.content["key"] is None else document.text("key")
    headers = document.part("headers").names()
    return Example(about=document.text("about"), key=key, headers=headers, value=document.content["value"])


def _sink(document: _Document) -> Sink:
    document.check_fields(known=("to", "how"), required=("to", "how"))
    return Sink(to=document.text("to"), how=document.text("how"))


def _partitions(document: _Document) -> str:
    expression = str(document.content["partitions"]).replace(" ", "")
    if not _PARTITIONS.fullmatch(expression):
        raise TopicError(
            f"{document.where}.partitions: a product of numbers, partitions, slots, k and history, not {expression!r}"
        )
    return expression


def _schema(document: _Document) -> Schema:
    schema = document.part("value").content
    if "$schema" not in schema:
        raise TopicError(f"{document.where}.value: $schema missing")
    definitions = document.part("value").part("$defs").content
    for name in (*document.part("by_key").names().values(), *document.part("by_kind").names().values()):
        if name not in definitions:
            raise TopicError(f"{document.where}.value.$defs: no definition {name!r}")
    return schema


def parse_topic_file(stem: str, content: object) -> TopicFile:
    """A topic file from its parsed YAML. Raises TopicError naming file and field."""
    document = _Document(stem, content)
    document.check_fields(known=_FIELDS, required=_REQUIRED)
    key = document.part("key")
    key.check_fields(known=("what", "why"), required=("what", "why"))
    template = document.text("name")
    if template != stem and not re.fullmatch(re.escape(stem) + r"(\.<[a-z_]+>)+", template):
        raise TopicError(f"{stem}.name: must be the name of the file, with parameters or without, not {template!r}")
    config = document.part("config")
    headers = document.part("headers")
    return TopicFile(
        topic=stem,
        template=template,
        purpose=document.text("purpose"),
        key=key.text("what"),
        key_why=key.text("why"),
        written_by=document.texts("written_by"),
        read_by=document.texts("read_by"),
        partitions=_partitions(document),
        config=tuple(_setting(name, config.part(name)) for name in config.content),
        headers=tuple(_header(name, headers.part(name)) for name in headers.content),
        tombstone=document.text("tombstone") if "tombstone" in document.content else None,
        by_key=document.part("by_key").names(),
        by_kind=document.part("by_kind").names(),
        value=_schema(document),
        examples=tuple(_example(part) for part in document.parts("examples")),
        sinks=tuple(_sink(part) for part in document.parts("sinks")),
    )
