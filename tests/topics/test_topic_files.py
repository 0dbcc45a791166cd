"""Every file of topics/ says all it must, and its examples are what its schema says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pytest
from jsonschema import Draft202012Validator

from noontide.records.topic_file import Example, TopicFile
from noontide.records.topics import Catalogue, load_catalogue, topics_folder

TABLE = (
    *("requests", "jobs", "state", "leases", "signals", "worker-events", "runs", "worker-inbox"),
    *("results", "executions", "dead-letters", "rejected", "alerts", "audit", "config", "owners", "sink-errors"),
    *("agents-state", "agents-told"),
)
COMPACTED = {"jobs", "state", "leases", "config", "owners", "agents-state", "agents-told"}
FILES = list(load_catalogue())
EXAMPLES = [(file, example) for file in FILES for example in file.examples]
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.topic)
each_example = pytest.mark.parametrize(
    "file, example", EXAMPLES, ids=[f"{file.topic}: {example.about}" for file, example in EXAMPLES]
)


def settings(file: TopicFile) -> Mapping[str, str]:
    return {setting.name: setting.value for setting in file.config}


def properties(schema: object, path: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Every property of a schema, however deep, with its path."""
    if isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from properties(item, f"{path}/{number}")
    if isinstance(schema, dict):
        for name, item in schema.items():
            if name == "properties":
                yield from ((f"{path}/{field}", cast("dict[str, object]", body)) for field, body in item.items())
            if name not in ("const", "enum", "required"):
                yield from properties(item, f"{path}/{name}")


def test_every_topic_of_the_architecture_has_a_file_and_no_other() -> None:
    assert sorted(file.topic for file in FILES) == sorted(TABLE)
    assert sorted(entry.name for entry in topics_folder().iterdir() if entry.name.endswith(".yaml")) == sorted(
        f"{topic}.yaml" for topic in TABLE
    )


def test_names_are_unique_and_no_name_fits_two_templates() -> None:
    assert len({file.template for file in FILES}) == len(FILES)
    for file in FILES:
        name = file.template.replace("<domain>", "x").replace("<lane>", "x")
        assert [other.topic for other in FILES if Catalogue(files={other.topic: other}).match(name)] == [file.topic]


@each_file
def test_schema_is_a_schema(file: TopicFile) -> None:
    Draft202012Validator.check_schema(cast("dict[str, object]", file.value))
    assert file.value["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@each_file
def test_every_field_has_a_description_and_a_since(file: TopicFile) -> None:
    for path, body in properties(file.value):
        assert str(body.get("description", "")).endswith("."), f"{file.topic}{path}: description"
        assert body.get("since") == "0.1", f"{file.topic}{path}: since"


@each_file
def test_every_setting_has_a_reason_in_a_sentence(file: TopicFile) -> None:
    for setting in file.config:
        assert setting.why.endswith("."), f"{file.topic} {setting.name}"
        assert len(setting.why) > 10, f"{file.topic} {setting.name}"


@each_file
def test_settings_that_no_topic_may_lack(file: TopicFile) -> None:
    config = settings(file)
    assert config["message.timestamp.type"] == "LogAppendTime"
    assert int(config["max.message.bytes"]) >= 1 << 20  # an owner's batch, and 256 KiB of payload four times over
    assert config["min.insync.replicas"] == ("1" if file.topic == "worker-inbox" else "2")
    assert int(config["segment.ms"]) >= 600_000


@each_file
def test_cleanup_is_what_the_architecture_says(file: TopicFile) -> None:
    config = settings(file)
    if file.topic in COMPACTED:
        assert config["cleanup.policy"] == "compact"
        assert "retention.ms" not in config
        needed = {"min.cleanable.dirty.ratio", "segment.bytes", "delete.retention.ms", "min.compaction.lag.ms"}
        assert needed <= config.keys()
        assert file.tombstone
    else:
        assert config["cleanup.policy"] == "delete"
        assert int(config["segment.ms"]) * 4 <= int(config["retention.ms"])  # whole segments go: not much late


@pytest.mark.parametrize(
    "topic, hours",
    [
        ("requests", 7 * 24),
        ("signals", 7 * 24),
        ("worker-events", 24),
        ("runs", 24),
        ("worker-inbox", 1),
        ("results", 7 * 24),
        ("executions", 7 * 24),
        ("dead-letters", 30 * 24),
        ("rejected", 30 * 24),
        ("alerts", 30 * 24),
        ("audit", 90 * 24),
        ("sink-errors", 30 * 24),
    ],
)
def test_retention_is_what_the_architecture_says(topic: str, hours: int) -> None:
    assert int(settings(load_catalogue()[topic])["retention.ms"]) == hours * 3_600_000


@each_example
def test_examples_are_valid(file: TopicFile, example: Example) -> None:
    if example.value is None and file.tombstone:
        return
    schema = file.schema_for(key=example.key, kind=example.headers.get("kind"))
    Draft202012Validator(cast("dict[str, object]", schema)).validate(example.value)
    Draft202012Validator(cast("dict[str, object]", file.value)).validate(example.value)


@each_example
def test_examples_use_declared_headers_and_fields(file: TopicFile, example: Example) -> None:
    patterns = [header.name for header in file.headers]
    for header in example.headers:
        assert any(header == name or (name.endswith("*") and header.startswith(name[:-1])) for name in patterns), header
    if isinstance(example.value, dict) and "properties" in (schema := file.value):
        assert example.value.keys() <= cast("dict[str, object]", schema["properties"]).keys()


@each_file
def test_every_variant_has_an_example(file: TopicFile) -> None:
    assert file.examples
    kinds = {example.headers.get("kind", "define") for example in file.examples}
    if file.by_kind:  # delete is shown by a null value
        assert kinds | {"delete"} == set(file.by_kind)
    assert {(example.key or "").split("/")[0] for example in file.examples} >= set(file.by_key)


@each_file
def test_schemas_refuse_what_is_wrong(file: TopicFile) -> None:
    if file.topic in ("signals", "sink-errors"):  # carries whatever was in the request; whatever could not be copied
        return
    wrongs: list[object] = [7, "text", []]
    assert [
        wrong for wrong in wrongs if Draft202012Validator(cast("dict[str, object]", file.value)).is_valid(wrong)
    ] == []


@pytest.mark.parametrize(
    "topic, key, kind, wrong",
    [
        ("state", "cursor/a", None, {"verdict": "accepted", "at": 1}),
        ("state", "__pos/3", None, {"due": None, "start": None, "n": 0, "gen": 1, "state": "active"}),
        ("config", "meta", None, {"partitions": 64, "slots": 0, "version": 1}),
        ("config", "domain/api", None, {"tenants": "a"}),
        ("requests", "a", "redrive", {"target": "handler:x"}),
        ("requests", "a", None, {"schedule": "* * * * *"}),
    ],
)
def test_schema_follows_key_and_kind(topic: str, key: str, kind: str | None, wrong: object) -> None:
    schema = load_catalogue()[topic].schema_for(key=key, kind=kind)
    assert not Draft202012Validator(cast("dict[str, object]", schema)).is_valid(wrong)
