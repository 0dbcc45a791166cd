"""What operators configure: what is refused when it is written, and what is read from the topic."""

from __future__ import annotations

from typing import cast

import orjson
import pytest

from noontide.core.errors import InvalidDefinition
from noontide.records.config import FIELDS, ConfigView, check_config, check_new_config, updated_view
from noontide.records.topics import load_catalogue


def view(**documents: object) -> ConfigView:
    records = [(key.replace("_", "/", 1), orjson.dumps(value)) for key, value in documents.items()]
    return updated_view(ConfigView(), cast("list[tuple[str, bytes | None]]", records), offset=1)


def test_the_fields_are_those_of_the_topic_file() -> None:
    kinds = cast("dict[str, dict[str, dict[str, object]]]", load_catalogue()["config"].value["$defs"])
    assert {kind: set(fields) for kind, fields in FIELDS.items()} == {
        kind: set(schema["properties"]) for kind, schema in kinds.items() if kind != "meta"
    }


@pytest.mark.parametrize(
    "key, document, said",
    [
        ("tenant/t", {"weigth": 2}, '/weigth: is not a known field; did you mean "weight"?'),
        ("tenant/t", {"exact_per_minute_max": 2}, 'did you mean "exact_starts_per_minute_max"?'),
        ("tenant/t", {"weight": 0}, "/weight: must be a number from 0.000001 to 1000000"),
        ("tenant/t", {"weight": 1e-320}, "/weight"),
        ("tenant/t", {"weight": True}, "/weight"),
        ("tenant/t", {"concurrency_max": -1}, "/concurrency_max: must be a whole number from 0"),
        ("tenant/t", {"concurrency_max": 1.5}, "/concurrency_max"),
        ("tenant/t", {"concurrency_keys": {"a": -1}}, "/concurrency_keys/a"),
        ("target/t", {"handler": "h", "starts_per_second_max": 0}, "/starts_per_second_max: must be a number from"),
        ("target/t", {"handler": "h", "starts_per_second_max": 1e-300}, "/starts_per_second_max"),
        ("target/t", {"handler": "h", "url": "https://x.example"}, "exactly one of"),
        ("target/t", {"topic": "x", "concurrency_max": 1}, "no limits"),
        ("lane/bulk", {"lease_ms": 1}, "/lease_ms: is not a known field"),
        ("tenant/a/b", {}, "printable characters without '/'"),
        ("calendar/" + "x" * 201, {"dates": []}, "1 to 200"),
    ],
)
def test_what_means_nothing_is_refused_when_it_is_written(key: str, document: object, said: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        check_new_config(key, orjson.dumps(document))
    assert said in str(refused.value)


def test_a_field_of_another_version_is_no_obstacle_to_reading() -> None:
    document = {"weight": 2, "of_another_version": True}
    assert check_config("tenant/t", orjson.dumps(document)) == document


@pytest.mark.parametrize("order", [("target_b", "target_a"), ("target_a", "target_b")])
def test_two_targets_of_one_thing_hold_both_in_any_order(order: tuple[str, str]) -> None:
    handlers = {name: {"handler": "h", "concurrency_max": 1} for name in order}
    assert view(**handlers).limits.limiters_of("t", "handler:h", None) == ("target/a", "target/b")
    urls = {name: {"url": "https://x.example/", "topic": None, "concurrency_max": 1} for name in order}
    assert view(**urls).limits.limiters_of("t", "https://x.example/y", None) == ("target/a", "target/b")
    topics = {name: {"topic": "orders", "tenants": [name]} for name in order}
    assert view(**topics).topics["orders"].tenants == {"target_a", "target_b"}


@pytest.mark.parametrize(
    "url, target, holds",
    [
        ("https://crm.example/", "https://crm.example/contacts", True),
        ("https://CRM.example", "https://crm.example/contacts", True),
        ("https://crm.example/", "HTTPS://Crm.Example:443/contacts", True),
        ("https://crm.example:443", "https://crm.example?q=1", True),
        ("http://crm.example/api", "http://crm.example:80/api/v2", True),
        ("https://crm.example", "https://crm.example.elsewhere.example/", False),
        ("https://crm.example", "https://crm.example:8443/", False),
        ("https://crm.example/API", "https://crm.example/api", False),
        ("https://crm.example:", "https://crm.example/x", True),
        ("http://crm.example", "https://crm.example", False),
    ],
)
def test_hosts_are_compared_as_a_whole_and_without_case(url: str, target: str, holds: bool) -> None:
    book = view(target_crm={"url": url, "concurrency_max": 1}).limits
    assert bool(book.limiters_of("t", target, None)) is holds
