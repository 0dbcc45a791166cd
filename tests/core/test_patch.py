"""Merge patches (RFC 7396) that leave alone what they do not name."""

from __future__ import annotations

import orjson
import pytest

from noontide.core.definition import DefinitionContext, merge_patch, parse_definition
from noontide.core.errors import InvalidDefinition

PAYLOAD = b'{ "n" : 123456789012345678901234567890, "x":1.0 , "x": 2, "t":"\\u00e9" }'
DOCUMENT = b'{"id":"a","tenant":"default","payload":' + PAYLOAD + b',"paused":false,"labels":{"a":"1","b":"2"},"n":1e2}'


def test_pausing_leaves_every_other_byte_alone() -> None:
    paused = merge_patch(DOCUMENT, {"paused": True, "note": "until Monday"})
    assert paused == DOCUMENT.replace(b"false", b"true")[:-1] + b',"note":"until Monday"}'
    assert merge_patch(merge_patch(paused, {"paused": False}), {"note": None}) == DOCUMENT


def test_an_empty_patch_changes_nothing() -> None:
    assert merge_patch(DOCUMENT, {}) == DOCUMENT
    assert merge_patch(DOCUMENT, b"{}") == DOCUMENT


def test_objects_are_merged_and_null_removes() -> None:
    patched = merge_patch(DOCUMENT, {"labels": {"a": None, "c": "3"}, "n": None, "absent": None})
    assert b'"labels":{"b":"2","c":"3"}' in patched
    assert b'"n":1e2' not in patched
    assert PAYLOAD in patched


def test_a_payload_in_a_patch_given_as_text_is_kept_as_it_is() -> None:
    assert b'"payload":[1.0, 2 ]' in merge_patch(DOCUMENT, b'{"payload":[1.0, 2 ]}')
    assert b'"payload":{"a" : 1e2}' in merge_patch(b'{"payload":1}', b'{"payload":{"a" : 1e2}}')
    assert b'"payload":{"n" : 1' not in merge_patch(DOCUMENT, b'{"payload":null}')


@pytest.mark.parametrize(
    "target, patch, result",
    [  # RFC 7396, appendix A, for targets and patches that are objects
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_rfc_7396(target: object, patch: object, result: object) -> None:
    assert orjson.loads(merge_patch(orjson.dumps(target), patch)) == result
    assert orjson.loads(merge_patch(orjson.dumps(target), orjson.dumps(patch))) == result


@pytest.mark.parametrize("patch", [None, [], "a", 1, True, b"", b"null", b"[]", b'{"a":NaN}', b"\xff", {"a": {1, 2}}])
def test_what_is_no_patch_is_refused(patch: object) -> None:
    with pytest.raises(InvalidDefinition):
        merge_patch(DOCUMENT, patch)


def test_a_patch_that_is_too_deep_is_refused() -> None:
    merge_patch(DOCUMENT, b'{"a":' * 64 + b"1" + b"}" * 64)
    for levels in (65, 300, 900, 5_000):
        with pytest.raises(InvalidDefinition):
            merge_patch(DOCUMENT, b'{"a":' * levels + b"1" + b"}" * levels)


@pytest.mark.parametrize(
    "patch, member, value",
    [
        ({"timeout_sec": 5}, "timeout", "PT5S"),
        ({"run_at": "2030-01-01T00:00:00Z"}, "schedule", {"at": "2030-01-01T00:00:00Z"}),
        ({"schedule": "5 6 * * *"}, "schedule", {"cron": "5 6 * * *"}),
        ({"grace_sec": 2}, "grace", "PT2S"),
    ],
)
def test_a_patch_may_speak_in_short_forms(patch: object, member: str, value: object) -> None:
    context = DefinitionContext(key="a", tenant=None, created_ms=0)
    raw = b'{"schedule":"0 6 * * *","target":"handler:x","timeout":"PT5M","grace":"PT1M"}'
    document = parse_definition(raw, context=context).document
    patched = parse_definition(merge_patch(document, patch), context=context)
    assert orjson.loads(patched.document)[member] == value
