"""The issuer's keys: fetched when they are needed, kept while they are fresh, fetched anew when one is unknown.

a known key, fresh           at once
a known key, no longer fresh at once, and the keys are fetched anew beside it
an unknown key               fetched anew first, but not more often than every `keys_retry_sec`
the issuer does not answer   what is known counts for `keys_kept_sec`, then Unavailable
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx
import jwt
import orjson

from noontide.adapters.oidc.settings import ALGORITHMS, OidcSettings, is_loopback
from noontide.adapters.system_clock import boot_ms
from noontide.core.errors import NoontideError

log = logging.getLogger("noontide.access")
KEYS_MAX: Final = 100
_RSA: Final = tuple(name for name in ALGORITHMS if name[:2] in ("RS", "PS"))
_NEVER_MS: Final = float("-inf")


class Unavailable(NoontideError):
    """The issuer's keys cannot be had: nobody can be told apart until they can."""


class IssuerKey(NamedTuple):
    """A public key, and the algorithms that it is for."""

    material: Any
    algorithms: frozenset[str]


class IssuerKeys:
    """Keys by their ids; for one event loop. `version` changes when keys were taken away or replaced."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._client = httpx.AsyncClient(
            timeout=settings.fetch_timeout_sec, follow_redirects=False, verify=trust_of(settings), trust_env=False
        )
        self._keys: dict[str | None, IssuerKey] = {}
        self._texts: dict[str | None, bytes] = {}
        self._fetched_ms = self._tried_ms = _NEVER_MS
        self._fetching: asyncio.Task[None] | None = None
        self.version = 0

    async def key(self, key_id: str | None) -> IssuerKey | None:
        """The key of this id (None: the only one there is); None when the issuer has none. Raises Unavailable."""
        age_s = (boot_ms() - self._fetched_ms) / 1000
        if age_s > self._settings.keys_kept_sec:
            self._keys = {}
        if key_id not in self._keys:
            await self._fetch_again()
        elif age_s > self._settings.keys_fresh_sec:
            self._start()
        if not self._keys:
            raise Unavailable(f"the keys of {self._settings.issuer} cannot be fetched")
        return self._keys.get(key_id)

    async def close(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})
        await self._client.aclose()

    async def _fetch_again(self) -> None:
        task = self._start()
        if task is not None:
            await asyncio.shield(task)  # others wait for it too, whoever leaves

    def _start(self) -> asyncio.Task[None] | None:
        """The fetch that is under way, or a new one; None when the last one was a moment ago."""
        if self._fetching is None or self._fetching.done():
            if boot_ms() - self._tried_ms < self._settings.keys_retry_sec * 1000:
                return None
            self._tried_ms = boot_ms()
            self._fetching = asyncio.create_task(self._fetch(), name="issuer-keys")
        return self._fetching

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(self._settings.fetch_timeout_sec):
                texts = _usable(await self._document(await self._keys_url()))
                keys = {key_id: _key(orjson.loads(text)) for key_id, text in texts.items()}
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, jwt.PyJWTError, ValueError) as error:
            log.warning("keys of %s: %s: %s", self._settings.issuer, type(error).__name__, error)
            return
        if any(texts.get(key_id) != text for key_id, text in self._texts.items()):
            self.version += 1
        self._keys, self._texts, self._fetched_ms = keys, texts, boot_ms()

    async def _keys_url(self) -> str:
        settings = self._settings
        if settings.keys_url is not None:
            return settings.keys_url
        found = await self._document(f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        url = found.get("jwks_uri")
        if found.get("issuer") != settings.issuer or not isinstance(url, str):
            raise ValueError("the discovery document is not that of the issuer")
        parts = httpx.URL(url)
        if parts.scheme != "https" and not is_loopback(parts.host):
            raise ValueError("the key set is not served over https")
        return url

    async def _document(self, url: str) -> Mapping[str, object]:
        most, body = self._settings.keys_max_bytes, b""
        async with self._client.stream("GET", url, headers={"accept": "application/json"}) as response:
            if response.status_code != httpx.codes.OK:
                raise ValueError(f"{url} answered {response.status_code}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > most:
                    raise ValueError(f"{url} is larger than {most} bytes")
        document = orjson.loads(body)
        if not isinstance(document, dict):
            raise ValueError(f"{url} is no JSON object")
        return document


def _usable(key_set: Mapping[str, object]) -> dict[str | None, bytes]:
    """Texts of the keys that verify signatures, by id; with one key alone also for tokens that name none."""
    listed = key_set.get("keys")
    if not isinstance(listed, list):
        raise ValueError("the key set has no list of keys")
    found: dict[str | None, bytes] = {}
    for key in listed[:KEYS_MAX]:
        if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig":
            key_id, text = key.get("kid"), orjson.dumps(key, option=orjson.OPT_SORT_KEYS)
            if (key_id is None or isinstance(key_id, str)) and _is_key(key):
                found[key_id] = text
    if len(found) == 1:
        found[None] = next(iter(found.values()))
    return found


def _is_key(key: dict[str, object]) -> bool:
    """Whether it is one that can be read; others of the set may be of kinds that came later."""
    try:
        _key(key)
    except jwt.PyJWTError:
        return False
    return True


def _key(text: dict[str, Any]) -> IssuerKey:
    """A key of the set. One that names its algorithm is for that alone; an RSA key without is for all of RSA's."""
    key = jwt.PyJWK(text)
    named = key.algorithm_name if "alg" in text or key.key_type != "RSA" else None
    return IssuerKey(key.key, frozenset(_RSA if named is None else (named,)))


def trust_of(settings: OidcSettings) -> ssl.SSLContext:
    """Whose certificates are trusted."""
    context = ssl.create_default_context()
    if settings.ca_file is not None:
        context.load_verify_locations(settings.ca_file)
    return context
