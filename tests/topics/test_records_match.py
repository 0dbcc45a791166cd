"""What the record modules write is what the topic files say, field for field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast

import pytest
from jsonschema import Draft202012Validator

from noontide.core.definition import DefinitionContext, parse_definition
from noontide.core.errors import InvalidDefinition
from noontide.records.requests import decode_request
from noontide.records.signals import decode_signal, encode_signal
from noontide.records.topic_file import Example
from noontide.records.topics import load_catalogue

CREATED_MS = 1_772_356_364_120
FULL: dict[str, object] = {
    "id": "everything",
    "tenant": "billing",
    "schedule": {"cron": "30 2 * * *"},
    "timezone": "Europe/Berlin",
    "dst": {"gap": "shift", "repeat": "both"},
    "timing": {"window": "PT5M"},
    "starts_at": "2026-01-01T00:00:00Z",
    "ends_at": "2027-01-01T00:00:00Z",
    "max_runs": 10,
    "calendar": {"exclude": ["de-holidays"]},
    "target": {"http": {"url": "https://api.example/x", "method": "PUT", "headers": {"A": "b"}}},
    "payload": {"a": [1, 2.50, None]},
    "lane": "bulk",
    "priority": 9,
    "retry": {"max_attempts": 3, "backoff": ["PT10S", "PT30S"]},
    "timeout": "PT5M",
    "queue_deadline": "PT10M",
    "complete_by": "PT1H",
    "guarantee": "at_least_once",
    "misfire": "run_all",
    "grace": "PT60S",
    "run_all_max": 7,
    "overlap": "queue",
    "concurrency_key": "db",
    "on_upstream_failure": "skip",
    "pause_after_failures": 5,
    "paused": True,
    "note": "why",
    "labels": {"team": "x"},
    "managed_by": "git",
    "notify": {"on": ["dead"], "to": ["oncall"]},
    "idempotency_key": "k-1",
}
SHORT: list[dict[str, object]] = [
    {"schedule": "0 6 * * *", "target": "handler:x", "timeout_sec": 300},
    {"schedule": {"every": "PT15M"}, "target": "https://api.example/x", "queue_deadline_sec": 5},
    {"run_at": "2026-12-24T18:00:00Z", "target": "kafka://orders.reminders", "complete_by_sec": 60},
    {"schedule": {"after_completion": "PT5M"}, "target": {"handler": "x"}, "grace_sec": 1},
    {"schedule": {"cron": ["0 6 * * *", "0 18 * * *"]}, "target": "handler:x"},
    {"schedule": {"cron": "0 0 6 * * *", "seconds": True}, "target": "handler:x"},
    {"after": ["a", "b"], "target": "handler:x"},
]


def accepted(document: Mapping[str, object], key: str = "everything") -> tuple[dict[str, object], list[str]]:
    context = DefinitionContext(key=key, tenant=None, created_ms=CREATED_MS)
    definition = parse_definition(json.dumps(document).encode(), context=context)
    return json.loads(definition.document), [str(warning) for warning in definition.warnings]


def undeclared(schema: object, value: object, path: str = "") -> Iterator[str]:
    """Members of a value that the schema, which describes its members, does not describe."""
    if not isinstance(schema, dict):
        return
    options = [schema, *schema.get("anyOf", [])]
    properties = {name: body for option in options for name, body in option.get("properties", {}).items()}
    if isinstance(value, dict) and properties:
        yield from (f"{path}/{name}" for name in value if name not in properties)
        for name in value.keys() & properties.keys():
            yield from undeclared(properties[name], value[name], f"{path}/{name}")


@pytest.mark.parametrize("document", [FULL, *SHORT])
def test_normalised_definitions_are_what_jobs_holds(document: dict[str, object]) -> None:
    normalised, warnings = accepted(document)
    assert warnings == []
    schema = cast("dict[str, object]", load_catalogue()["jobs"].value)
    Draft202012Validator(schema).validate(normalised)
    assert list(undeclared(schema, normalised)) == []


@pytest.mark.parametrize("document", [FULL, *SHORT])
def test_what_is_accepted_is_a_valid_request(document: dict[str, object]) -> None:
    schema = cast("dict[str, object]", load_catalogue()["requests"].schema_for(kind="define"))
    Draft202012Validator(schema).validate(document)
    definitions = cast("dict[str, dict[str, dict[str, object]]]", schema["$defs"])
    assert document.keys() <= definitions["define"]["properties"].keys()


def test_every_field_of_the_schemas_is_known() -> None:
    """A field nobody reads would be kept with a warning: the files promise only what is read."""
    jobs = cast("dict[str, object]", load_catalogue()["jobs"].value["properties"])
    requests = cast("dict[str, dict[str, dict[str, object]]]", load_catalogue()["requests"].value["$defs"])
    shown = {name for document in (FULL, *SHORT) for name in document}
    assert set(jobs) | set(requests["define"]["properties"]) == shown
    assert all(accepted(document)[1] == [] for document in (FULL, *SHORT))


@pytest.mark.parametrize(
    "example",
    [e for e in load_catalogue()["jobs"].examples if e.value is not None],
    ids=lambda example: str(example.about),
)
def test_examples_of_jobs_are_accepted_and_stay_as_they_are(example: Example) -> None:
    value = cast("dict[str, object]", example.value)
    assert accepted(value, key=str(example.key)) == (value, [])


@pytest.mark.parametrize(
    "example",
    [
        example
        for topic in ("requests", "signals")
        for example in load_catalogue()[topic].examples
        if example.value is not None and example.headers.get("kind", "define") in ("define", "forward")
    ],
    ids=lambda example: str(example.about),
)
def test_examples_of_requests_are_accepted(example: Example) -> None:
    assert accepted(cast("dict[str, object]", example.value), key=str(example.key))[1] == []


SIGNALS = load_catalogue()["signals"].examples
REQUESTS = [
    *load_catalogue()["requests"].examples,
    *(example for example in SIGNALS if example.headers.get("kind") == "forward"),
]


@pytest.mark.parametrize(
    "example",
    [example for example in SIGNALS if example.headers.get("kind") != "forward"],
    ids=lambda example: str(example.about),
)
def test_examples_of_signals_are_what_the_owner_writes(example: Example) -> None:
    headers = [(name, text.encode()) for name, text in example.headers.items()]
    signal = decode_signal(json.dumps(example.value).encode(), headers)
    assert signal is not None
    record = encode_signal(signal)
    assert json.loads(record.value or b"") == example.value
    assert (record.key, record.headers) == (str(example.key).encode(), headers)


@pytest.mark.parametrize("example", REQUESTS, ids=lambda example: str(example.about))
def test_examples_of_requests_are_understood(example: Example) -> None:
    value = None if example.value is None else json.dumps(example.value).encode()
    headers = [
        (name.removeprefix("request-"), text.encode()) for name, text in example.headers.items() if text != "forward"
    ]
    request = decode_request(key=str(example.key).encode(), value=value, headers=headers)
    kind = "delete" if value is None else example.headers.get("kind", "define").replace("forward", "define")
    assert type(request).__name__.lower() == kind
    assert request.job_id == example.key


@pytest.mark.parametrize("kind", ["delete", "trigger", "cancel", "backfill", "redrive"])
def test_every_field_of_a_command_is_known(kind: str) -> None:
    """Unknown members of commands are refused by name: none of the schema's may be among them."""
    values: dict[str, object] = {
        "run_id": "a:20260302T013000Z",
        "from": "2026-02-01T00:00:00Z",
        "to": "2026-02-08T00:00:00Z",
        "overlap": "skip",
        "max": 5,
        "reprocess": True,
        "dry_run": True,
        "due": "2026-02-01T00:00:00Z",
        "members": ["a", "b"],
    }
    definitions = cast("dict[str, dict[str, dict[str, object]]]", load_catalogue()["requests"].value["$defs"])
    for field in definitions[kind]["properties"]:
        needed = {"backfill": ("from", "to"), "redrive": () if field == "run_id" else ("from",)}.get(kind, ())
        command = {name: values.get(name, "x") for name in (field, *needed)}
        headers = [("kind", kind.encode())]
        assert decode_request(key=b"a", value=json.dumps(command).encode(), headers=headers).job_id == "a"
    with pytest.raises(InvalidDefinition, match="/surprise"):
        decode_request(key=b"a", value=b'{"surprise": 1}', headers=[("kind", kind.encode())])
