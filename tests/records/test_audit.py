"""What the audit shows, and what it does not."""

from __future__ import annotations

import orjson

from noontide.records.audit import VALUE_MAX_BYTES, Action, Change, encode_change, shown_config, shown_definition


def test_a_value_that_is_too_long_is_left_out_and_said_so() -> None:
    long = orjson.dumps({"note": "x" * VALUE_MAX_BYTES})
    change = Change(action=Action.UPDATED, subject="job/a", at_ms=1, before=b'{"a":1}', after=long)
    shown = orjson.loads(encode_change(change))
    assert shown == {
        "action": "updated",
        "subject": "job/a",
        "at": 1,
        "truncated": True,
        "before": {"a": 1},
        "after": {},
    }


def test_a_url_is_shown_without_user_and_query() -> None:
    target = {"http": {"url": "https://ada:pw@api.example/x/y?token=1"}}
    shown = orjson.loads(shown_definition(orjson.dumps({"id": "a", "target": target, "payload": 1})))
    assert shown == {"id": "a", "target": {"http": {"url": "https://api.example/x/y?***"}}}


def test_other_targets_are_shown_as_they_are() -> None:
    document = {"id": "a", "target": {"topic": {"name": "orders"}}}
    assert orjson.loads(shown_definition(orjson.dumps(document))) == document


def test_configuration_is_shown_without_hashes_and_paths_of_webhooks() -> None:
    token = shown_config("token/ci", {"role": "admin", "secrets": [{"sha256": "f" * 64}]})
    channel = shown_config("channel/ops", {"url": "https://chat.example/hooks/T0/s3cret", "secret": "chat"})
    assert orjson.loads(token or b"") == {"role": "admin"}
    assert orjson.loads(channel or b"") == {"url": "https://chat.example/***", "secret": "chat"}
    assert shown_config("target/x", None) is None
