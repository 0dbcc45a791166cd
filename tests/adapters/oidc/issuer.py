"""An issuer on this machine: joserfc signs, a thread serves discovery document and key set."""

from __future__ import annotations

import base64
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from noontide.adapters.oidc.settings import OidcSettings

AUDIENCE = "noontide"
Key = RSAKey | ECKey | OKPKey | OctKey


def ec_key(key_id: str | None) -> ECKey:
    """A new P-256 key."""
    return ECKey.generate_key("P-256", {} if key_id is None else {"kid": key_id}, private=True)


@dataclass(slots=True)
class Issuer:
    """keys: what the key set shows. requests: paths that were asked for. down: answer 503. padding: spaces in it."""

    url: str = ""
    keys: list[Key] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    down: bool = False
    discovery: dict[str, object] = field(default_factory=dict)
    padding: int = 0
    lifetime_sec: int = 300
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def settings(self, **changes: Any) -> OidcSettings:
        """Settings that trust it."""
        given: dict[str, Any] = {"issuer": self.url, "audience": AUDIENCE, "keys_retry_sec": 0}
        return OidcSettings(**given | changes)

    def token(self, key: Key, claims: Mapping[str, object] | None = None, **header: Any) -> str:
        """A token as a well-behaved issuer makes it; claims that are None are left out."""
        now = int(time.time())
        usual = {
            "iss": self.url, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300,
            "noontide_role": "operator", "noontide_tenants": ["billing"],
        }  # fmt: skip
        named = {"alg": _algorithm(key), **({} if key.kid is None else {"kid": key.kid}), **header}
        said = {name: value for name, value in {**usual, **(claims or {})}.items() if value is not None}
        return jwt.encode(named, said, key, algorithms=[str(named["alg"])])

    def let_in(self, query: str) -> str:
        """Where the browser of somebody who asks to be let in goes next: everybody is let in at once."""
        asked = dict(parse_qsl(query))
        self._codes[code := secrets.token_hex(8)] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def grant(self, body: str) -> tuple[int, bytes]:
        """A token for a code that is given back by whoever asked for it, once; or for a refresh token."""
        given = dict(parse_qsl(body))
        self.requests.append(f"/token {given.get('grant_type')}")
        if given.get("grant_type") == "refresh_token":
            good = given.get("refresh_token") == "again"
        else:
            asked = self._codes.pop(given.get("code", ""), {})
            digest = sha256(given.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            good = (asked.get("code_challenge"), asked.get("client_id"), asked.get("redirect_uri")) == (
                challenge, given.get("client_id"), given.get("redirect_uri"),
            )  # fmt: skip
        if not good:
            return 400, b'{"error":"invalid_grant"}'
        token = self.token(self.keys[0], {"exp": int(time.time()) + self.lifetime_sec})
        return 200, orjson.dumps({"access_token": token, "expires_in": self.lifetime_sec, "refresh_token": "again"})

    def answer(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        self.requests.append(path)
        if self.down:
            return 503, b"{}"
        if path == "/keys":
            public = [key.as_dict(private=isinstance(key, OctKey)) for key in self.keys]
            return 200, orjson.dumps({"keys": public, "padding": " " * self.padding})
        endpoints = {"authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token"}
        named = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **endpoints, **self.discovery}
        return 200, orjson.dumps(named)


def _algorithm(key: Key) -> str:
    return {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA", "oct": "HS256"}[key.key_type]


@contextmanager
def running_issuer(*keys: Key) -> Iterator[Issuer]:
    """Serves until the context ends."""
    issuer = Issuer(keys=list(keys))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == "/authorize":
                self.send_response(302)
                self.send_header("location", issuer.let_in(query))
                self.send_header("content-length", "0")
                self.end_headers()
                return
            self._answer(*issuer.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self._answer(*issuer.grant(body.decode()))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
