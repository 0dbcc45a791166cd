"""Secrets reach the hosts they were registered for, and nothing else: no other host, log, error or history."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from pathlib import Path

import orjson
import pytest
from tests.adapters.http.conftest import LOCAL
from tests.adapters.http.servers import Received, Server, Wire, always, invitation, serving

from noontide.adapters.http import HttpExecutor, SecretRule, SecretStore
from noontide.adapters.http.refusals import Refused, Unready
from noontide.adapters.http.secrets import Destination
from noontide.adapters.http.signing import signing_headers
from noontide.records.worker_events import End, Outcome

VALUE = 'S3cret-"value"!'
HERE = SecretRule(tenants=frozenset({"billing"}), hosts=frozenset({"127.0.0.1"}), plain_http=True)
AUTHS: list[tuple[dict[str, object], str, str]] = [
    ({"bearer": {"secret": "api-key"}}, "authorization", f"Bearer {VALUE}"),
    (
        {"basic": {"username": "me", "secret": "api-key"}},
        "authorization",
        "Basic " + base64.b64encode(f"me:{VALUE}".encode()).decode(),
    ),
    ({"header": {"name": "X-Api-Key", "secret": "api-key"}}, "x-api-key", VALUE),
]


def store(rule: SecretRule = HERE, **environment: str) -> SecretStore:
    return SecretStore({"api-key": rule}, environment=environment or {"NOONTIDE_SECRET_API_KEY": VALUE})


def destination(scheme: str = "https", host: str = "api.example.com", tenant: str = "billing") -> Destination:
    return Destination(tenant=tenant, scheme=scheme, host=host)


async def attempt(server: Server, secrets: SecretStore, *, path: str = "/hook", **http: object) -> End:
    executor = HttpExecutor(LOCAL, secrets=secrets, now_ms=lambda: 1_700_000_000_999)
    invited = invitation(server.url(path))
    try:
        target: dict[str, object] = {"http": {"url": server.url(path), **http}}
        return await executor.execute(invited._replace(target=target), 7, cancelled=asyncio.Event())
    finally:
        await executor.aclose()


@pytest.mark.parametrize("auth,header,sent", AUTHS)
async def test_the_forms_of_auth(auth: dict[str, object], header: str, sent: str) -> None:
    async with serving(always()) as server:
        end = await attempt(server, store(), auth=auth)
    assert end.outcome is Outcome.SUCCEEDED
    assert server.requests[0].headers[header] == sent


@pytest.mark.parametrize(
    "rule,said",
    [
        (SecretRule(tenants=frozenset({"shop"}), hosts=HERE.hosts, plain_http=True), "not registered for tenant"),
        (SecretRule(tenants=frozenset(), hosts=HERE.hosts, plain_http=True), "not registered for tenant"),
        (SecretRule(tenants=HERE.tenants, hosts=frozenset({"x.example"}), plain_http=True), "not registered for host"),
        (SecretRule(tenants=HERE.tenants, hosts=frozenset({"*"}), plain_http=True), "not registered for host"),
        (SecretRule(tenants=HERE.tenants, hosts=HERE.hosts), "is not sent without TLS"),
    ],
)  # fmt: skip
async def test_what_is_not_permitted_is_not_sent(rule: SecretRule, said: str) -> None:
    async with serving(always()) as server:
        for auth, _, _ in AUTHS:
            end = await attempt(server, store(rule), auth=auth)
            assert (end.outcome, end.permanent) == (Outcome.FAILED, True)
            assert said in (end.error or "")
    assert (server.connections, server.requests) == (0, [])


@pytest.mark.parametrize("name", ["other", "", "../api-key", "/etc/passwd", "x" * 101])
def test_unknown_names_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "api-key").write_text(VALUE)
    with pytest.raises(Refused, match="is not registered for tenant billing"):
        SecretStore({"api-key": HERE}, folder=tmp_path / "x").value(name, destination())


@pytest.mark.parametrize(
    "host,admitted",
    [
        ("api.example.com", True),
        ("API.example.com", True),
        ("v2.apis.example.org", True),
        ("apis.example.org", False),
        ("evilapis.example.org", False),
        ("api.example.com.evil.net", False),
        ("example.com", False),
        ("xapi.example.com", False),
    ],
)
def test_hosts_of_a_rule(host: str, admitted: bool) -> None:
    rule = SecretRule(tenants=frozenset({"*"}), hosts=frozenset({"api.example.com", "*.apis.example.org"}))
    assert rule.admits_host(host) is admitted


def test_a_value_comes_from_a_file_and_follows_its_changes(tmp_path: Path) -> None:
    rule = SecretRule(tenants=frozenset({"*"}), hosts=frozenset({"api.example.com"}))
    secrets = SecretStore({"api-key": rule}, folder=tmp_path, environment={"NOONTIDE_SECRET_API_KEY": "from-outside"})
    assert secrets.value("api-key", destination()).reveal == b"from-outside"
    for value in ("first", "second-longer"):
        (tmp_path / "api-key").write_text(value + "\n")
        assert secrets.value("api-key", destination()).reveal == value.encode()
    (tmp_path / "api-key").unlink()
    assert secrets.value("api-key", destination()).reveal == b"from-outside"


@pytest.mark.parametrize("value", ["", "   ", "a\nb", "a\r\nX-Evil: 1", "ä", "a\x00", "x" * 4_097])
async def test_values_that_no_header_can_carry_are_not_sent_and_not_shown(value: str) -> None:
    async with serving(always()) as server:
        end = await attempt(server, store(NOONTIDE_SECRET_API_KEY=value), auth=AUTHS[0][0])
    assert (end.outcome, end.permanent, server.requests) == (Outcome.FAILED, False, [])
    assert end.error == "secret api-key must be 1 to 4096 visible ASCII characters on this worker"


async def test_a_missing_value_may_come() -> None:
    async with serving(always()) as server:
        end = await attempt(server, store(OTHER="x"), auth=AUTHS[0][0])
    assert (end.outcome, end.permanent) == (Outcome.FAILED, False)
    assert end.error == "secret api-key has no value on this worker"


def test_a_folder_in_place_of_a_file_is_an_error_with_a_name(tmp_path: Path) -> None:
    (tmp_path / "api-key").mkdir()
    rule = SecretRule(tenants=frozenset({"*"}), hosts=frozenset({"api.example.com"}))
    with pytest.raises(Unready, match="secret api-key cannot be read on this worker \\(IsADirectoryError\\)"):
        SecretStore({"api-key": rule}, folder=tmp_path).value("api-key", destination())


def test_values_do_not_show_themselves() -> None:
    rule = SecretRule(tenants=frozenset({"*"}), hosts=frozenset({"api.example.com"}))
    value = store(rule).value("api-key", destination())
    assert VALUE not in f"{value!r} {value}"


@pytest.mark.parametrize("status", ["200 OK", "500 Oops"])
@pytest.mark.parametrize("auth,header,sent", AUTHS)
async def test_a_server_that_echoes_does_not_bring_a_secret_into_the_history(
    auth: dict[str, object], header: str, sent: str, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def echo(wire: Wire, request: Received) -> None:
        said = {"text": f"you sent {request.headers[header]} (that is {VALUE})"}
        await wire.answer(status, body=orjson.dumps(said), headers="content-type: application/json\r\n")

    with caplog.at_level(logging.DEBUG):
        async with serving(echo) as server:
            end = await attempt(server, store(), auth=auth)
    kept = bytes(end.result).decode()
    assert "you sent" in kept
    assert "***" in kept
    for secret in (VALUE, VALUE.replace('"', '\\"'), sent.removeprefix("Basic "), "S3cret"):
        assert secret not in f"{kept} {end.error} {caplog.text}"


async def test_a_cut_response_does_not_end_in_half_a_secret() -> None:
    body = b"x" * (64 * 1024 - 8) + VALUE.encode() + b"y" * 10_000
    async with serving(always(body=body)) as server:
        end = await attempt(server, store(), auth=AUTHS[0][0])
    assert end.truncated
    assert b"S3c" not in bytes(end.result)


async def test_a_redirect_never_carries_credentials_to_another_host() -> None:
    async with serving(always()) as other:
        for status in (301, 302, 303, 307, 308):
            for method in ("GET", "POST"):
                redirect = always(f"{status} Moved", headers=f"location: {other.url('/x?secret=1')}\r\n")
                async with serving(redirect) as server:
                    end = await attempt(server, store(), auth=AUTHS[0][0], method=method)
                assert (end.outcome, end.permanent, end.status) == (Outcome.FAILED, True, status)
                assert (end.error or "").startswith(f"HTTP {status} to http://127.0.0.1:{other.port}: ")
                assert "secret=1" not in (end.error or "")
        assert other.requests == []


async def test_signed_requests_verify_as_standard_webhooks() -> None:
    key = b"0123456789abcdef0123456789abcdef"
    secrets = store(NOONTIDE_SECRET_API_KEY="whsec_" + base64.b64encode(key).decode())
    async with serving(always()) as server:
        end = await attempt(server, secrets, sign={"secret": "api-key"}, headers={"Webhook-Id": "forged"})
    assert end.outcome is Outcome.SUCCEEDED
    (got,) = server.requests
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert got.headers["webhook-timestamp"] == "1700000000"
    assert got.names.count("Webhook-Id") + got.names.count("webhook-id") == 1


def test_the_example_of_standard_webhooks() -> None:
    """The test vector of the specification's reference libraries."""
    found = dict(
        signing_headers(
            b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            run_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
            now_s=1614265330,
            body=b'{"test": 2432232314}',
        )
    )
    assert found[b"webhook-signature"] == b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_id_of_a_message_has_no_dots() -> None:
    found = dict(signing_headers(b"key", run_id="a.1700000000.b:m1", now_s=1, body=b""))
    assert found[b"webhook-id"] == b"a%2E1700000000%2Eb:m1"


async def test_a_signing_secret_is_bound_to_its_hosts_too() -> None:
    elsewhere = SecretRule(tenants=HERE.tenants, hosts=frozenset({"x.example"}))
    async with serving(always()) as server:
        end = await attempt(server, store(elsewhere), sign={"secret": "api-key"})
        broken = await attempt(server, store(NOONTIDE_SECRET_API_KEY="whsec_%%%"), sign={"secret": "api-key"})
    assert (end.permanent, server.requests) == (True, [])
    assert broken.error == "the signing secret begins with whsec_ but is not base64 after it"
