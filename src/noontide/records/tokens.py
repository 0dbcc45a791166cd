"""Records `token/<id>` on `config`: who may use the API with a secret of which only the hash is here.

    noontide_<id>_<43 characters>       the text its holder presents; the last part is 32 random bytes

The secret has 256 random bits, so that one SHA-256 is enough: there is nothing to guess that a slow hash would protect.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import orjson

from noontide.core.access import ALL_TENANTS, Principal, Role
from noontide.core.errors import InvalidDefinition
from noontide.core.fields import Findings, integer, members, name, one_of, prose
from noontide.core.instants import format_instant, parse_instant
from noontide.core.limits import DEFAULT_LIMITS

SECRET_BYTES: Final = 32
SECRET_CHARS: Final = -(-SECRET_BYTES * 4 // 3)
"""Of the last part of the text: URL-safe, so it may have underlines of its own."""
SECRETS_MAX: Final = 2
"""The newest, and the one before it until its time is over."""
RATE_MAX: Final = 1_000_000
TENANTS_MAX: Final = 1_000
TOKEN_ID_FORM: Final = "1 to 63 of a-z, 0-9 and '-', a letter or digit first"
_FIELDS = (
    "role", "tenants", "secrets", "created_at", "created_by", "expires_at", "requests_per_second", "note"
)  # fmt: skip

is_token_id = re.compile(r"[a-z0-9][a-z0-9-]{0,62}").fullmatch
_matches_text = re.compile(rf"noontide_([a-z0-9][a-z0-9-]{{0,62}})_([A-Za-z0-9_-]{{{SECRET_CHARS}}})").fullmatch
_matches_hash = re.compile(r"[0-9a-f]{64}").fullmatch
_read_role = one_of(Role)
_read_tenant = name(DEFAULT_LIMITS.name_max_chars)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretHash:
    """One secret of a token. sha256: hex. expires_ms: None = as long as the token."""

    sha256: str
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as it is kept. tenants: ids, or "*" for all. expires_ms: None = until it is revoked."""

    id: str
    role: Role
    tenants: frozenset[str]
    secrets: tuple[SecretHash, ...]
    created_ms: int
    created_by: str = ""
    expires_ms: int | None = None
    requests_per_second: int | None = None
    note: str = ""

    def principal(self) -> Principal:
        """Who asks with it."""
        return Principal(
            name=f"token:{self.id}",
            role=self.role,
            tenants=self.tenants,
            requests_per_second=self.requests_per_second,
        )

    def is_valid(self, presented: str, *, now_ms: int) -> bool:
        """Whether this text is one of its secrets, and its time is not over."""
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            return False
        given = hash_of(presented)
        alive = [each for each in self.secrets if each.expires_ms is None or now_ms < each.expires_ms]
        return any(hmac.compare_digest(given, each.sha256) for each in alive)

    def rotated(self, presented: str, *, old_until_ms: int) -> Token:
        """The token with a new secret; the newest one so far goes on until `old_until_ms`, older ones do not."""
        newest = self.secrets[0]
        until_ms = old_until_ms if newest.expires_ms is None else min(old_until_ms, newest.expires_ms)
        return replace(self, secrets=(SecretHash(sha256=hash_of(presented)), replace(newest, expires_ms=until_ms)))


def token_text(token_id: str, secret: bytes) -> str:
    """What the holder presents. Raises ValueError for a secret that is not `SECRET_BYTES` long."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes")
    return f"noontide_{token_id}_{urlsafe_b64encode(secret).rstrip(b'=').decode()}"


def hash_of(presented: str) -> str:
    """SHA-256 of the whole text, in hex: a hash belongs to one id."""
    return sha256(presented.encode()).hexdigest()


def token_id_of(presented: str) -> str | None:
    """The id in a text; None when it is none of ours."""
    found = _matches_text(presented)
    return None if found is None else found[1]


def encode_token(token: Token) -> bytes:
    """JSON of a token, without its id, which is in the key."""
    document: dict[str, object] = {
        "role": token.role,
        "tenants": ALL_TENANTS if ALL_TENANTS in token.tenants else sorted(token.tenants),
        "secrets": [_secret_document(each) for each in token.secrets],
        "created_at": format_instant(token.created_ms),
    }
    optional = {
        "created_by": token.created_by or None,
        "expires_at": None if token.expires_ms is None else format_instant(token.expires_ms),
        "requests_per_second": token.requests_per_second,
        "note": token.note or None,
    }
    return orjson.dumps(document | {field: value for field, value in optional.items() if value is not None})


def decode_token(token_id: str, document: Mapping[str, object]) -> Token:
    """Inverse of `encode_token`, for what is read from the topic. Raises InvalidDefinition with every problem."""
    findings = Findings(DEFAULT_LIMITS)
    given = members(dict(document), "", _FIELDS, findings)
    if not is_token_id(token_id):
        findings.refuse("/id", f"is not the id of a token: {TOKEN_ID_FORM}")
    for field in ("role", "tenants", "secrets", "created_at"):
        if field not in given:
            findings.refuse(f"/{field}", "is missing")
    role = findings.read(_read_role, given.get("role", Role.VIEWER), "/role")
    tenants = findings.read(read_tenants, given.get("tenants", ALL_TENANTS), "/tenants")
    secrets = findings.read(_secrets, given.get("secrets", []), "/secrets")
    created_ms = findings.read(_instant, given.get("created_at"), "/created_at") if "created_at" in given else 0
    expires_ms = findings.read(_instant, given["expires_at"], "/expires_at") if "expires_at" in given else None
    rate = given.get("requests_per_second")
    per_second = None if rate is None else findings.read(integer(1, RATE_MAX), rate, "/requests_per_second")
    note = findings.read(prose(DEFAULT_LIMITS.note_max_chars), given.get("note", ""), "/note")
    by = findings.read(prose(DEFAULT_LIMITS.text_max_chars), given.get("created_by", ""), "/created_by")
    if problems := (*findings.problems, *findings.unknown):
        raise InvalidDefinition(problems)
    return Token(
        id=token_id, role=role or Role.VIEWER, tenants=tenants or frozenset(), secrets=secrets or (),
        created_ms=created_ms or 0, created_by=by or "", expires_ms=expires_ms, requests_per_second=per_second,
        note=note or "",
    )  # fmt: skip


def read_tenants(value: object, pointer: str) -> frozenset[str]:
    """ "*", or a list of one to `TENANTS_MAX` tenant ids."""
    if value in (ALL_TENANTS, [ALL_TENANTS]):
        return frozenset({ALL_TENANTS})
    if not isinstance(value, list) or not 1 <= len(value) <= TENANTS_MAX:
        raise InvalidDefinition.of(pointer, f'must be "*" or a list of 1 to {TENANTS_MAX} tenant ids')
    return frozenset(_read_tenant(item, f"{pointer}/{number}") for number, item in enumerate(value))


def _secret_document(secret: SecretHash) -> dict[str, str]:
    until = {} if secret.expires_ms is None else {"expires_at": format_instant(secret.expires_ms)}
    return {"sha256": secret.sha256, **until}


def _secrets(value: object, pointer: str) -> tuple[SecretHash, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= SECRETS_MAX:
        raise InvalidDefinition.of(pointer, f"must be a list of 1 to {SECRETS_MAX} hashes")
    return tuple(_secret(item, f"{pointer}/{number}") for number, item in enumerate(value))


def _secret(value: object, pointer: str) -> SecretHash:
    digest = value.get("sha256") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(digest, str) or not _matches_hash(digest):
        raise InvalidDefinition.of(pointer, 'must be {"sha256": 64 hex digits}, with "expires_at" or without')
    until = value.get("expires_at")
    return SecretHash(sha256=digest, expires_ms=None if until is None else _instant(until, f"{pointer}/expires_at"))


def _instant(value: object, pointer: str) -> int:
    return parse_instant(value, zone=None, pointer=pointer)
