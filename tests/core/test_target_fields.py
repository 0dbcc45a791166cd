"""Targets: what is accepted, and what is said about the rest."""

from __future__ import annotations

import pytest

from noontide.core.errors import InvalidDefinition
from noontide.core.fields import Findings
from noontide.core.limits import DEFAULT_LIMITS
from noontide.core.target_fields import TargetReader
from noontide.core.targets import BasicAuth, BearerAuth, HandlerTarget, HeaderAuth, HttpTarget, Target, TopicTarget

READER = TargetReader(DEFAULT_LIMITS, "noontide.")


def read(value: object) -> Target:
    return READER.read(value, "/target", Findings(DEFAULT_LIMITS))[0]


def refusals(value: object) -> dict[str, str]:
    with pytest.raises(InvalidDefinition) as refused:
        read(value)
    return {problem.pointer: problem.message for problem in refused.value.problems}


@pytest.mark.parametrize(
    "url",
    ["http://a", "https://example.org", "https://example.org:8443/a/b?c=d&e=%20", "http://10.0.0.1/", "http://[::1]:80/",
     "http://my_service:8080/x", "https://xn--bcher-kva.example/", "HTTPS://EXAMPLE.ORG/"],
)  # fmt: skip
def test_accepted_urls(url: str) -> None:
    assert read({"http": {"url": url}}) == HttpTarget(url=url, method="POST", headers=(), auth=None)


@pytest.mark.parametrize(
    "url",
    ["", "example.org", "ftp://example.org", "file:///etc/passwd", "http://", "http:///path", "https:example.org",
     "http://:80/", "http://user:pw@example.org/", "http://example.org:99999/", "http://example.org:x/", "http://[::1/",
     "http://exa mple.org/", "http://example.org/\r\nX: y", "http://example.org/\x00", "http://bücher.example/",
     "http://example.org\\@evil.org/", "http://example.org/#part", "http://example.org/#", "http://a" + "a" * 2048,
     "javascript:alert(1)", None, 5, ["http://a"]],
)  # fmt: skip
def test_refused_urls(url: object) -> None:
    assert set(refusals({"http": {"url": url}})) == {"/target/http/url"}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_methods(method: str) -> None:
    target = read({"http": {"url": "http://a", "method": method}})
    assert isinstance(target, HttpTarget)
    assert target.method == method
    assert '"GET"' in refusals({"http": {"url": "http://a", "method": method.lower()}})["/target/http/method"]


def test_headers_are_kept_in_order() -> None:
    target = read({"http": {"url": "http://a", "headers": {"X-B": "1", "Content-Type": "text/plain", "x-a": ""}}})
    assert isinstance(target, HttpTarget)
    assert target.headers == (("X-B", "1"), ("Content-Type", "text/plain"), ("x-a", ""))


@pytest.mark.parametrize(
    "header, value, words",
    [
        ("X-A", "a\r\nX-B: c", "without line breaks"),
        ("X-A", "a\nb", "without line breaks"),
        ("X-A", "a\x00", "without line breaks"),
        ("X-A", "é", "ASCII"),
        ("X-A", 5, "string"),
        ("X-A", "x" * 4_097, "at most 4096"),
        ("X A", "b", "not a header name"),
        ("X-A\r\nB", "b", "not a header name"),
        ("", "b", "not a header name"),
        ("X:", "b", "not a header name"),
        ("Noontide-Run", "b", "reserved"),
        ("noontide-anything", "b", "reserved"),
        ("Idempotency-Key", "b", "reserved"),
        ("traceparent", "b", "reserved"),
        ("Host", "b", "reserved"),
        ("Content-Length", "5", "reserved"),
        ("Transfer-Encoding", "chunked", "reserved"),
        ("Connection", "close", "reserved"),
        ("Authorization", "Bearer abc", "use auth"),
    ],
)
def test_refused_headers(header: str, value: object, words: str) -> None:
    (pointer,) = found = refusals({"http": {"url": "http://a", "headers": {header: value}}})
    assert pointer == f"/target/http/headers/{header}"
    assert words in found[pointer]


def test_a_header_in_two_spellings_is_given_twice() -> None:
    headers = {"X-A": "1", "x-a": "2"}
    assert set(refusals({"http": {"url": "http://a", "headers": headers}})) == {"/target/http/headers/x-a"}


@pytest.mark.parametrize(
    "auth, expected",
    [
        ({"bearer": {"secret": "token"}}, BearerAuth(secret="token")),
        ({"basic": {"username": "ada", "secret": "pw"}}, BasicAuth(username="ada", secret="pw")),
        ({"header": {"name": "X-Api-Key", "secret": "key"}}, HeaderAuth(header="X-Api-Key", secret="key")),
    ],
)
def test_auth_names_its_secret(auth: object, expected: object) -> None:
    target = read({"http": {"url": "http://a", "auth": auth}})
    assert isinstance(target, HttpTarget)
    assert target.auth == expected


@pytest.mark.parametrize(
    "auth, pointer",
    [
        ("token", ""),
        ({}, ""),
        ({"digest": {"secret": "a"}}, ""),
        ({"bearer": {"secret": "a"}, "basic": {"username": "a", "secret": "b"}}, ""),
        ({"bearer": "token"}, "/bearer"),
        ({"bearer": {"secret": "a", "token": "b"}}, "/bearer"),
        ({"bearer": {"secret": "a b"}}, "/bearer/secret"),
        ({"bearer": {"secret": "../../etc"}}, "/bearer/secret"),
        ({"basic": {"username": "a:b", "secret": "c"}}, "/basic/username"),
        ({"header": {"name": "Noontide-Run", "secret": "c"}}, "/header/name"),
        ({"header": {"name": "Host", "secret": "c"}}, "/header/name"),
    ],
)
def test_refused_auth(auth: object, pointer: str) -> None:
    assert set(refusals({"http": {"url": "http://a", "auth": auth}})) == {f"/target/http/auth{pointer}"}


def test_auth_and_headers_must_not_set_the_same_header() -> None:
    auth = {"header": {"name": "X-Key", "secret": "k"}}
    found = refusals({"http": {"url": "http://a", "headers": {"x-key": "v"}, "auth": auth}})
    assert set(found) == {"/target/http/headers/X-Key"}


@pytest.mark.parametrize(
    "topic", ["orders", "orders.reminders", "a", "A-b_c.9", "noontide-orders", "noontide", "t" * 249]
)
def test_topics(topic: str) -> None:
    assert read(f"kafka://{topic}") == TopicTarget(name=topic, key=None)
    assert read({"topic": {"name": topic, "key": "k 1"}}) == TopicTarget(name=topic, key="k 1")


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "a b", "a/b", "ü", "t" * 250, "noontide.jobs", "noontide.", "__consumer_offsets", "__x", "a\n",
     None, 5],
)  # fmt: skip
def test_refused_topics(topic: object) -> None:
    assert set(refusals({"topic": {"name": topic}})) == {"/target/topic/name"}


@pytest.mark.parametrize("key", ["", "a\x00b", "k" * 201, 5, True])
def test_refused_keys(key: object) -> None:
    assert set(refusals({"topic": {"name": "orders", "key": key}})) == {"/target/topic/key"}


def test_handlers() -> None:
    assert read("handler:reports.send:v2") == HandlerTarget(name="reports.send:v2")
    refused: list[object] = ["", "a b", "a/b", "ü", "x" * 201, 5, {}]
    for name in refused:
        assert set(refusals({"handler": name})) == {"/target/handler"}


@pytest.mark.parametrize(
    "value",
    [
        "",
        "example.org",
        "mailto:a@b",
        "Handler:a",
        {},
        [],
        5,
        {"http": {"url": "http://a"}, "handler": "b"},
        {"grpc": {}},
    ],
)
def test_exactly_one_known_target(value: object) -> None:
    assert list(refusals(value)) == ["/target"]
