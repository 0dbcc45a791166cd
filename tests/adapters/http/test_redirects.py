"""Which redirects are followed, and what goes along."""

from __future__ import annotations

import pytest
from tests.adapters.http.conftest import Attempt
from tests.adapters.http.servers import Received, Script, Server, Wire, always, invitation, serving

from noontide.adapters.http.outgoing import Outgoing
from noontide.adapters.http.redirects import follow, same_host
from noontide.adapters.http.refusals import Refused
from noontide.adapters.http.urls import parse_url, resolve_location
from noontide.records.worker_events import Outcome


async def climb(wire: Wire, request: Received) -> None:
    """`/3` leads to `/2` and so on to `/0`; the status is the first segment: `/307/3`."""
    _, status, step = request.path.split("/")
    if step == "0":
        await wire.answer(body=b"there")
    else:
        await wire.answer(f"{status} Moved", headers=f"location: {int(step) - 1}#part\r\n", body=b"go on")


def _to(other: Server, status: str) -> Script:
    return always(status, headers=f"location: {other.url('/x')}\r\n")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_reading_follows_up_to_the_limit(attempt: Attempt, method: str, status: int) -> None:
    async with serving(climb) as server:
        five = await attempt(invitation(server.url(f"/{status}/5"), method=method))
        six = await attempt(invitation(server.url(f"/{status}/6"), method=method))
    assert (five.outcome, five.status) == (Outcome.SUCCEEDED, 200)
    assert (six.outcome, six.permanent) == (Outcome.FAILED, True)
    assert (six.error or "").startswith("more than 5 redirects")
    assert {request.method for request in server.requests} == {method}
    assert (len(server.requests), server.connections) == (12, 1)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_writing_keeps_method_and_body_or_stops(attempt: Attempt, method: str) -> None:
    async with serving(climb) as server:
        for status in (307, 308):
            assert (await attempt(invitation(server.url(f"/{status}/1"), method=method))).outcome is Outcome.SUCCEEDED
        assert {(request.method, request.body) for request in server.requests} == {(method, b'{"n":1}')}
        for status in (301, 302, 303):
            end = await attempt(invitation(server.url(f"/{status}/1"), method=method))
            assert (end.outcome, end.permanent) == (Outcome.FAILED, True)
            assert f"a redirect of {method} is followed for 307 and 308 only" in (end.error or "")


async def test_another_host_gets_neither_own_headers_nor_bodies(attempt: Attempt) -> None:
    async with serving(always(body=b"there")) as other, serving(_to(other, "307 Moved")) as server:
        read = await attempt(invitation(server.url(), method="GET", headers={"X-Token": "t"}))
        written = await attempt(invitation(server.url(), method="POST"))
    assert read.outcome is Outcome.SUCCEEDED
    assert (written.outcome, written.permanent) == (Outcome.FAILED, True)
    assert "POST does not follow a redirect to another host" in (written.error or "")
    (got,) = other.requests
    assert got.headers["host"] == f"127.0.0.1:{other.port}"
    assert "x-token" not in got.headers
    assert server.requests[0].headers["x-token"] == "t"


@pytest.mark.parametrize("location", ["", "mailto:x@example.com", "file:///etc/passwd", "http://u:p@127.0.0.1/", "http://[x/",
                                      "http://ex ample/", "gopher://127.0.0.1/"])  # fmt: skip
async def test_redirects_to_nowhere_are_failures(attempt: Attempt, location: str) -> None:
    async with serving(always("302 Found", headers=f"location: {location}\r\n")) as server:
        end = await attempt(invitation(server.url(), method="GET"))
    assert (end.outcome, end.permanent, len(server.requests)) == (Outcome.FAILED, True, 1)
    assert (end.error or "").startswith("HTTP 302")


@pytest.mark.parametrize(
    "before,after,same",
    [
        ("http://a/x", "http://a/y", True),
        ("http://a/x", "http://a:80/y", True),
        ("http://A/x", "http://a/y", True),
        ("http://a/", "https://a/", True),
        ("https://a/", "http://a/", False),
        ("http://a/", "https://a:8443/", False),
        ("http://a:8080/", "https://a/", False),
        ("https://a/", "https://a:8443/", False),
        ("https://a/", "https://b.a/", False),
        ("https://a.example/", "https://a.example.evil.net/", False),
    ],
)
def test_the_same_host(before: str, after: str, same: bool) -> None:
    assert same_host(parse_url(before), parse_url(after)) is same


@pytest.mark.parametrize("after", ["http://a/", "https://a:8443/", "https://b/"])
def test_credentials_stay(after: str) -> None:
    url = parse_url("https://a/")
    request = Outgoing(method="GET", url=url, headers=(), confidential=((b"Authorization", b"x"),), credentials=True)
    with pytest.raises(Refused, match="credentials do not follow"):
        follow(request, status=302, location=after)
    assert follow(request, status=302, location="https://a/y") is not None


@pytest.mark.parametrize(
    "location,site,path",
    [
        ("/y?q=1", "http://a.example:8080", "/y?q=1"),
        ("y", "http://a.example:8080", "/x/y"),
        ("//b.example", "http://b.example", "/"),
        ("https://B.example:443/%2e", "https://b.example", "/%2e"),
        ("http://[::1]:81/", "http://[::1]:81", "/"),
    ],
)
def test_locations(location: str, site: str, path: str) -> None:
    found = resolve_location(parse_url("http://a.example:8080/x/w?p#f"), location)
    assert (found.site, found.path) == (site, path)
