"""The OpenAPI document is the one that is checked in, and its examples are what the API takes."""

from __future__ import annotations

from pathlib import Path

import httpx
import orjson
from jsonschema import Draft202012Validator

from noontide.apps.api.openapi import BODIES, printed

FILE = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"


def test_the_file_is_fresh() -> None:
    assert FILE.read_text("utf-8") == printed(), "run ./scripts/docs"


def test_every_operation_that_writes_describes_its_body() -> None:
    document = orjson.loads(FILE.read_bytes())
    assert document["openapi"] == "3.1.0"
    paths = document["paths"]
    assert {(method, path) for method, path in BODIES if method not in paths.get(path, {})} == set()
    takes_body = {(method, path) for path in paths for method in paths[path] if method in ("post", "put", "patch")}
    assert takes_body == BODIES.keys()


def test_examples_are_valid() -> None:
    document = orjson.loads(FILE.read_bytes())
    for body in BODIES.values():
        schema = {**document["components"]["schemas"][body.schema], "components": document["components"]}
        Draft202012Validator(schema).validate(body.example)


async def test_it_is_served(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/openapi.json")
    assert answer.json() == orjson.loads(FILE.read_bytes())
