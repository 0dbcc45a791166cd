"""Tokens: only hashes are kept, and what was kept is what counts."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from noontide.core.access import Principal, Role
from noontide.core.errors import InvalidDefinition
from noontide.records.config import check_config
from noontide.records.tokens import (
    SECRET_CHARS,
    SecretHash,
    Token,
    decode_token,
    encode_token,
    hash_of,
    token_id_of,
    token_text,
)

NOW_MS = 1_772_463_601_003
TEXT = token_text("ci", bytes(range(32)))
TOKEN = Token(
    id="ci", role=Role.OPERATOR, tenants=frozenset({"billing"}), secrets=(SecretHash(sha256=hash_of(TEXT)),),
    created_ms=NOW_MS, created_by="cli:ada", expires_ms=NOW_MS + 10, requests_per_second=5, note="deploys",
)  # fmt: skip


def test_what_is_kept_gives_the_token_back_and_holds_no_secret() -> None:
    kept = encode_token(TOKEN)
    assert decode_token("ci", orjson.loads(kept)) == TOKEN
    assert check_config("token/ci", kept)
    assert TEXT[-SECRET_CHARS:].encode() not in kept


def test_a_token_is_valid_until_its_time_is_over() -> None:
    assert TOKEN.is_valid(TEXT, now_ms=NOW_MS + 9)
    assert not TOKEN.is_valid(TEXT, now_ms=NOW_MS + 10)
    assert not TOKEN.is_valid(token_text("ci", bytes(32)), now_ms=NOW_MS)


def test_after_a_rotation_the_old_secret_goes_on_for_a_while_and_the_one_before_it_does_not() -> None:
    second, third = token_text("ci", b"2" * 32), token_text("ci", b"3" * 32)
    endless = replace(TOKEN, expires_ms=None)
    once = endless.rotated(second, old_until_ms=NOW_MS + 5)
    assert [once.is_valid(each, now_ms=NOW_MS + 4) for each in (TEXT, second)] == [True, True]
    assert [once.is_valid(each, now_ms=NOW_MS + 5) for each in (TEXT, second)] == [False, True]
    twice = once.rotated(third, old_until_ms=NOW_MS + 6)
    assert [twice.is_valid(each, now_ms=NOW_MS) for each in (TEXT, second, third)] == [False, True, True]
    assert decode_token("ci", orjson.loads(encode_token(twice))) == twice


@pytest.mark.parametrize(
    "text", ["", "Bearer x", "noontide_ci_short", "noontide_CI_" + "a" * 43, "noontide__" + "a" * 43, TEXT + "\n"]
)
def test_a_text_that_is_no_token_has_no_id(text: str) -> None:
    assert token_id_of(text) is None


def test_the_id_is_in_the_text_whatever_the_secret_looks_like() -> None:
    assert token_id_of(token_text("a-b", b"\xff" * 32)) == "a-b"
    assert token_id_of(token_text("ci", b"\xfb\xef\xbe" + bytes(29))) == "ci"  # "--" and "_" in base64url


@pytest.mark.parametrize(
    "change, pointer",
    [
        ({"role": "root"}, "/role"),
        ({"role": None}, "/role"),
        ({"tenants": []}, "/tenants"),
        ({"tenants": "billing"}, "/tenants"),
        ({"tenants": ["a b"]}, "/tenants/0"),
        ({"secrets": []}, "/secrets"),
        ({"secrets": [{"sha256": "abc"}]}, "/secrets/0"),
        ({"secrets": "x"}, "/secrets"),
        ({"requests_per_second": 0}, "/requests_per_second"),
        ({"expires_at": "soon"}, "/expires_at"),
        ({"unknown": 1}, "/unknown"),
    ],
)
def test_what_is_no_token_is_refused(change: dict[str, object], pointer: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        decode_token("ci", orjson.loads(encode_token(TOKEN)) | change)
    assert [each.pointer for each in refused.value.problems] == [pointer]


def test_a_principal_sees_its_tenants_and_may_what_its_role_may() -> None:
    bound = TOKEN.principal()
    assert bound == Principal(
        name="token:ci", role=Role.OPERATOR, tenants=frozenset({"billing"}), requests_per_second=5
    )
    assert (bound.sees("billing"), bound.sees("orders"), bound.tenant) == (True, False, "billing")
    assert not bound.everywhere
