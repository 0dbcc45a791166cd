"""The reference page of topics, written from the topic files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from noontide.records.topic_file import Example, Schema, TopicFile
from noontide.records.topics import DEFAULT_DOMAINS, DEFAULT_LANES, Catalogue

_INTRODUCTION = f"""\
# Topics

Written from `topics/*.yaml` by `noontide topics docs`; change those, not this page.

Every name has the prefix `noontide.` unless another one is set. `<domain>` and `<lane>` stand for names: the domains
{" and ".join(f"`{name}`" for name in DEFAULT_DOMAINS)} and the lanes {", ".join(f"`{name}`" for name in DEFAULT_LANES)}
are made at the start, more with `--domains` and `--lanes`. In the partition counts `partitions` is 64 unless another
number is chosen when the topics are made, `slots` is 8, and `k` is 1 (partitions of a lane's `runs` per slot).
Values are JSON in UTF-8, at most 1 MiB. Unknown fields must be ignored by readers: fields are added, never changed.
`min.insync.replicas` is lowered to 1 where a topic has fewer than three replicas.
"""


def topics_page(catalogue: Catalogue) -> str:
    """The whole page as Markdown, ending in a line break."""
    parts = [_INTRODUCTION, _overview(catalogue), *(topic_section(file) for file in catalogue)]
    return "\n".join(parts)


def topic_section(file: TopicFile) -> str:
    """One topic as Markdown, a second-level heading first."""
    return "\n".join(_section_lines(file))


def field_rows(schema: Schema) -> list[tuple[str, str, str, str]]:
    """Name, type, description and since of each field of a schema, nested ones with dotted names."""
    return [row for name, row in _fields(schema, "")] if schema else []


def variants(file: TopicFile) -> list[tuple[str, Schema]]:
    """The kinds of values a topic has, as (title, schema); one where there is only one."""
    definitions = file.value.get("$defs")
    if not isinstance(definitions, dict):
        return [(str(file.value.get("title", "Value")), file.value)]
    chosen_by = {name: f"key `{key}/...`" for key, name in file.by_key.items()}
    chosen_by |= {name: f"kind `{kind}`" for kind, name in file.by_kind.items()}
    return [
        (f"{schema.get('title', name)} ({chosen_by.get(name, f'kind `{name}`')})", schema)
        for name, schema in definitions.items()
    ]


def _overview(catalogue: Catalogue) -> str:
    rows = [
        (f"[`{file.template}`](#{_anchor(file.template)})", file.key, f"`{file.partitions}`", _policy(file))
        for file in catalogue
    ]
    return "\n".join(_table(("topic", "key", "partitions", "policy"), rows)) + "\n"


def _policy(file: TopicFile) -> str:
    config = {setting.name: setting.value for setting in file.config}
    if config["cleanup.policy"] == "compact":
        return "compact"
    hours = int(config["retention.ms"]) // 3_600_000
    return f"delete after {hours // 24} d" if hours >= 24 else f"delete after {hours} h"


def _section_lines(file: TopicFile) -> Iterator[str]:
    yield f"## `{file.template}`"
    yield from ("", file.purpose, "")
    yield f"- **Key**: {file.key}. {file.key_why}"
    yield f"- **Written by**: {'; '.join(file.written_by)}"
    yield f"- **Read by**: {'; '.join(file.read_by)}"
    yield f"- **Partitions**: `{file.partitions}`"
    if file.tombstone:
        yield f"- **Null value**: {file.tombstone}"
    yield from (f"- **Sink**: {sink.to}. {sink.how}" for sink in file.sinks)
    settings = [(f"`{setting.name}`", f"`{setting.value}`", setting.why) for setting in file.config]
    yield from ("", *_table(("setting", "value", "why"), settings))
    if file.headers:
        headers = [(f"`{header.name}`", header.description, header.since) for header in file.headers]
        yield from ("", *_table(("header", "description", "since"), headers))
    for title, schema in variants(file):
        yield from ("", f"### {title}", "", *_fields_table(schema))
    yield from ("", "### Examples", "")
    for example in file.examples:
        yield from _example_lines(example)


def _fields_table(schema: Schema) -> Iterable[str]:
    rows = [(f"`{name}`", kind, description, since) for name, kind, description, since in field_rows(schema)]
    return _table(("field", "type", "description", "since"), rows) if rows else ("Any bytes; see above.",)


def _example_lines(example: Example) -> Iterator[str]:
    yield from (example.about, "", "```")
    yield f"key      {'null' if example.key is None else example.key}"
    yield from (f"header   {name}: {value}" for name, value in example.headers.items())
    yield f"value    {json.dumps(example.value, ensure_ascii=False)}"
    yield from ("```", "")


def _fields(schema: object, path: str) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    if not isinstance(schema, Mapping):
        return
    required = schema.get("required", ())
    for name, body in schema.get("properties", {}).items():
        kind = _kind(body) + (", required" if name in required else "")
        yield path + name, (path + name, kind, str(body["description"]), str(body["since"]))
        yield from _fields(body, f"{path}{name}.")
    for option in schema.get("anyOf", ()):
        yield from _fields(option, path)
    if "items" in schema:
        yield from _fields(schema["items"], f"{path.removesuffix('.')}[].")


def _kind(body: Mapping[str, object]) -> str:
    """A short word for what a field may be."""
    if "const" in body:
        return f"`{_plain(body['const'])}`"
    if isinstance(values := body.get("enum"), list):
        return ", ".join(f"`{_plain(value)}`" for value in values)
    if isinstance(options := body.get("anyOf"), list):
        return " or ".join(dict.fromkeys(_kind(option) for option in options))
    kind = body.get("type", "any")
    if kind == "array" and isinstance(items := body.get("items"), dict):
        return f"list of {_kind(items)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _anchor(heading: str) -> str:
    """GitHub's anchor of a heading: lower case, only letters, digits, hyphens and underscores."""
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "-_")
