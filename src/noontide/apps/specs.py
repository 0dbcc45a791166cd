"""AsyncAPI and JSON Schemas out of the topic files, and the check that a newer schema still reads older records.

`python -m noontide.apps.specs FOLDER` writes asyncapi.yaml and schemas/<topic>.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import cast

import orjson
import yaml

from noontide.records.topic_file import Schema, TopicFile
from noontide.records.topics import Catalogue, Layout, load_catalogue

ASYNCAPI = "3.0.0"
OURS = frozenset({"requests", "results", "executions", "dead-letters", "rejected", "alerts", "jobs"})
"""Topics that others write or read; the rest is between our own processes, and is described all the same."""


def spec_files() -> dict[str, str]:
    """Contents by path."""
    catalogue = load_catalogue()
    files = {f"schemas/{file.topic}.json": _json(schema_document(file)) for file in catalogue}
    return {"asyncapi.yaml": yaml.safe_dump(asyncapi(catalogue), sort_keys=False, width=110), **files}


def schema_document(file: TopicFile) -> dict[str, object]:
    """The schema of a topic's values, with an id."""
    return {"$id": f"https://noontide.example/schemas/{file.topic}.json", **file.value}


def asyncapi(catalogue: Catalogue) -> dict[str, object]:
    """The document: a channel per topic, with what others may do with it."""
    prefix = Layout().prefix
    channels, operations, messages = dict[str, object](), dict[str, object](), dict[str, object]()
    for file in catalogue:
        name = _identifier(file.topic)
        channels[name] = _channel(file, prefix)
        messages[name] = _message(file)
        for action in ("send", "receive") if file.topic == "requests" else ("receive",) if file.topic in OURS else ():
            operations[f"{action}_{name}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{name}"},
                "summary": file.purpose,
            }
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Noontide",
            "version": version("noontide"),
            "description": "Jobs at their times, on Kafka. Written from topics/*.yaml.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"kafka": {"host": "kafka:9092", "protocol": "kafka"}},
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _channel(file: TopicFile, prefix: str) -> dict[str, object]:
    address = prefix + file.template.replace("<", "{").replace(">", "}")
    channel: dict[str, object] = {
        "address": address,
        "description": file.purpose,
        "messages": {"record": {"$ref": f"#/components/messages/{_identifier(file.topic)}"}},
        "bindings": {"kafka": {"bindingVersion": "0.5.0"}},
    }
    if file.parameters:
        channel["parameters"] = {name: {"description": f"Name of a {name}."} for name in file.parameters}
    return channel


def _message(file: TopicFile) -> dict[str, object]:
    message: dict[str, object] = {
        "name": file.topic,
        "summary": file.purpose,
        "payload": {
            "schemaFormat": "application/schema+json;version=2020-12",
            "schema": {"$ref": f"./schemas/{file.topic}.json"},
        },
        "bindings": {"kafka": {"key": {"type": "string", "description": file.key}, "bindingVersion": "0.5.0"}},
    }
    if file.headers:
        properties = {header.name: {"type": "string", "description": header.description} for header in file.headers}
        message["headers"] = {"type": "object", "properties": properties}
    return message


def breaks(old: Schema, new: Schema, at: str = "") -> Iterator[str]:
    """What a record of the old schema, or a reader of it, would stumble over in the new one, as sentences."""
    before, after = _members(old), _members(new)
    for name in before.keys() - after.keys():
        yield f"{at}/{name} is gone"
    for name in sorted(_required(new) - _required(old)):
        yield f"{at}/{name} is required now"
    for name in sorted(before.keys() & after.keys()):
        one, other = before[name], after[name]
        if lost := _types(one) - _types(other):
            yield f"{at}/{name} may not be {', '.join(sorted(lost))} any more"
        if lost := _values(one) - _values(other):
            yield f"{at}/{name} lost {', '.join(sorted(lost))}"
        yield from breaks(one, other, f"{at}/{name}")
    old_parts, new_parts = _definitions(old), _definitions(new)
    for name in sorted(old_parts.keys() - new_parts.keys()):
        yield f"{at}#{name} is gone"
    for name in sorted(old_parts.keys() & new_parts.keys()):
        yield from breaks(old_parts[name], new_parts[name], f"{at}#{name}")


def _members(schema: Schema) -> Mapping[str, Schema]:
    return cast("Mapping[str, Schema]", schema.get("properties", {}))


def _definitions(schema: Schema) -> Mapping[str, Schema]:
    return cast("Mapping[str, Schema]", schema.get("$defs", {}))


def _required(schema: Schema) -> set[str]:
    return set(cast("list[str]", schema.get("required", [])))


def _types(schema: Schema) -> set[str]:
    found = schema.get("type", [])
    return {found} if isinstance(found, str) else set(cast("list[str]", found))


def _values(schema: Schema) -> set[str]:
    return {str(value) for value in cast("list[object]", schema.get("enum", []))}


def _identifier(topic: str) -> str:
    return topic.replace("-", "_")


def _json(document: object) -> str:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


if __name__ == "__main__":
    import sys

    for name, text in spec_files().items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
