"""Where requests may not go: every special network, every disguise, every redirect, every second answer of a name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.http.conftest import LOCAL
from tests.adapters.http.servers import always, invitation, serving

from noontide.adapters.http import HttpExecutor, HttpSettings
from noontide.adapters.http.addresses import Kind, embedded, kinds, literal
from noontide.records.worker_events import End, Outcome

SPECIAL = {
    "0.0.0.0/8": Kind.UNSPECIFIED,
    "10.0.0.0/8": Kind.PRIVATE,
    "100.64.0.0/10": Kind.PRIVATE,
    "127.0.0.0/8": Kind.LOOPBACK,
    "169.254.0.0/16": Kind.LINK_LOCAL,
    "172.16.0.0/12": Kind.PRIVATE,
    "192.0.0.0/24": Kind.RESERVED,
    "192.0.2.0/24": Kind.RESERVED,
    "192.168.0.0/16": Kind.PRIVATE,
    "198.18.0.0/15": Kind.RESERVED,
    "198.51.100.0/24": Kind.RESERVED,
    "203.0.113.0/24": Kind.RESERVED,
    "224.0.0.0/4": Kind.MULTICAST,
    "240.0.0.0/4": Kind.RESERVED,
    "::/128": Kind.UNSPECIFIED,
    "::1/128": Kind.LOOPBACK,
    "fe80::/10": Kind.LINK_LOCAL,
    "fc00::/7": Kind.PRIVATE,
    "fec0::/10": Kind.PRIVATE,
    "64:ff9b:1::/48": Kind.PRIVATE,
    "ff00::/8": Kind.MULTICAST,
    "100::/64": Kind.RESERVED,
    "2001:db8::/32": Kind.RESERVED,
    "3fff::/20": Kind.RESERVED,
    "5f00::/16": Kind.RESERVED,
}
PUBLIC = (
    "8.8.8.8 93.184.216.34 126.255.255.255 128.0.0.0 172.15.255.255 172.32.0.0 169.253.255.255 169.255.0.0 "
    "223.255.255.255 100.63.255.255 100.128.0.0 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1"
)
METADATA = ("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")


def members(network: IPv4Network | IPv6Network) -> st.SearchStrategy[IPv4Address | IPv6Address]:
    """Addresses of a network, often its first and last."""
    first, last = int(network[0]), int(network[-1])
    make = IPv4Address if network.version == 4 else IPv6Address
    return st.one_of(st.sampled_from((first, last)), st.integers(first, last)).map(make)


special = st.sampled_from(sorted(SPECIAL)).flatmap(
    lambda text: st.tuples(members(ip_network(text)), st.just(SPECIAL[text]))
)
special_v4 = special.filter(lambda pair: pair[0].version == 4)


def disguises(address: IPv4Address) -> list[IPv6Address]:
    """Addresses of IPv6 that packets leave towards this one through."""
    number = int(address)
    return [
        IPv6Address(f"::ffff:{address}"),
        IPv6Address(f"64:ff9b::{address}"),
        IPv6Address(f"::ffff:0:{address}"),
        IPv6Address((0x2002 << 112) | (number << 80) | 1),
        IPv6Address((0x2001 << 112) | (0x08080808 << 64) | (number ^ 0xFFFFFFFF)),
        IPv6Address((0x2001 << 112) | (number << 64) | (0x08080808 ^ 0xFFFFFFFF)),
        IPv6Address((0x2A00 << 112) | (0x00005EFE << 32) | number),
        IPv6Address((0x2A00 << 112) | (0x02005EFE << 32) | number),
    ]


@given(special)
def test_no_special_network_is_public(case: tuple[IPv4Address | IPv6Address, Kind]) -> None:
    address, kind = case
    assert kinds(address) & {kind, Kind.METADATA}


@given(special_v4)
def test_an_ipv4_address_is_recognised_in_every_disguise(case: tuple[IPv4Address, Kind]) -> None:
    address, kind = case
    for disguised in disguises(address):
        assert address in embedded(disguised)
        assert kinds(disguised) & {kind, Kind.METADATA}, disguised


@given(special_v4.filter(lambda case: int(case[0]) > 1))
def test_the_compatible_form_is_never_public(case: tuple[IPv4Address, Kind]) -> None:
    assert kinds(IPv6Address(int(case[0])))


@given(st.ip_addresses(v=4))
def test_what_python_calls_global_only_we_may_refuse_and_not_the_other_way(address: IPv4Address) -> None:
    if not kinds(address):
        assert address.is_global


@given(st.ip_addresses(v=6))
def test_public_ipv6_is_global_unicast(address: IPv6Address) -> None:
    if not kinds(address):
        assert address in IPv6Network("2000::/3") or embedded(address)


@pytest.mark.parametrize("text", METADATA)
def test_metadata_services_are_metadata_whatever_network_they_are_in(text: str) -> None:
    assert kinds(ip_address(text)) == {Kind.METADATA}


@pytest.mark.parametrize("text", PUBLIC.split())
def test_public_addresses_are_public(text: str) -> None:
    assert kinds(ip_address(text)) == frozenset()


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0X7F.1", "017700000001", "0177.0.0.1", "127.0.0.1.",
             "::1", "0:0:0:0:0:0:0:1"],
)  # fmt: skip
def test_odd_spellings_are_addresses(text: str) -> None:
    address = literal(text)
    assert address is not None
    assert kinds(address) == {Kind.LOOPBACK}


@pytest.mark.parametrize("text", ["example.com", "a.127", "1.2.3.4.example", "0x7f.example", "localhost"])
def test_names_are_no_addresses(text: str) -> None:
    if text == "a.127":
        with pytest.raises(ValueError, match="is not an address"):
            literal(text)
    else:
        assert literal(text) is None


class Names:
    """A name server whose answers are scripted, one per question."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if not self.answers:
            raise OSError("NXDOMAIN")
        return self.answers.pop(0)


async def run(
    url: str, settings: HttpSettings | None = None, names: Names | None = None, *, method: str = "POST"
) -> End:
    executor = HttpExecutor(settings or HttpSettings(), resolve=names or Names())
    try:
        return await executor.execute(invitation(url, timeout_ms=3_000, method=method), 1, cancelled=asyncio.Event())
    finally:
        await executor.aclose()


@pytest.mark.parametrize(
    "host,said",
    [
        ("127.0.0.1", "127.0.0.1 is loopback (setting allow_loopback)"),
        ("2130706433", "2130706433 is 127.0.0.1, which is loopback (setting allow_loopback)"),
        ("0x7f.1", "0x7f.1 is 127.0.0.1, which is loopback (setting allow_loopback)"),
        ("10.0.0.1", "10.0.0.1 is private (setting allow_private)"),
        ("169.254.1.1", "169.254.1.1 is link-local (setting allow_hosts)"),
        ("169.254.169.254", "169.254.169.254 is a metadata service (setting allow_hosts)"),
        ("[::ffff:169.254.169.254]", "is a metadata service (setting allow_hosts)"),
        ("[::ffff:a9fe:a9fe]", "is a metadata service (setting allow_hosts)"),
        ("[64:ff9b::a9fe:a9fe]", "is a metadata service (setting allow_hosts)"),
        ("[fd00:ec2::254]", "fd00:ec2::254 is a metadata service (setting allow_hosts)"),
        ("[::]", ":: is unspecified (setting allow_hosts)"),
        ("[::1]", "::1 is loopback (setting allow_loopback)"),
        ("0.0.0.0", "0.0.0.0 is unspecified (setting allow_hosts)"),
        ("1.2.3.4.5", "1.2.3.4.5 is not an address"),
    ],
)
async def test_refusals_are_permanent_and_name_the_setting(host: str, said: str) -> None:
    """Case htp-08 among them."""
    end = await run(f"http://{host}/latest/meta-data/")
    assert (end.outcome, end.permanent, end.status) == (Outcome.FAILED, True, None)
    assert (end.error or "").startswith("refused: ")
    assert said in (end.error or "")


async def test_a_refused_attempt_sends_nothing() -> None:
    async with serving(always()) as server:
        end = await run(server.url(), HttpSettings())
        named = await run(server.url(host="rebound.example"), HttpSettings(), Names(["127.0.0.1"]))
    assert (server.connections, server.requests) == (0, [])
    assert end.permanent
    assert named.error == "refused: rebound.example is 127.0.0.1, which is loopback (setting allow_loopback)"


async def test_a_name_is_asked_for_once_per_connection() -> None:
    """Case htp-10: a second answer that is worse is never asked for."""
    async with serving(always()) as server:
        names = Names(["127.0.0.1"], ["169.254.169.254"])
        end = await run(server.url(host="rebinding.example"), LOCAL, names)
    assert end.outcome is Outcome.SUCCEEDED
    assert names.asked == ["rebinding.example"]
    assert server.requests[0].headers["host"] == f"rebinding.example:{server.port}"


async def test_of_several_addresses_only_permitted_ones_are_used() -> None:
    async with serving(always()) as server:
        names = Names(["169.254.169.254", "::ffff:10.0.0.1", "127.0.0.1"])
        end = await run(server.url(host="mixed.example"), LOCAL, names)
    assert end.outcome is Outcome.SUCCEEDED


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async with serving(always()) as server:
        end = await run(server.url(host="two.example"), LOCAL, Names(["127.0.0.2", "127.0.0.1"]))
    assert end.outcome is Outcome.SUCCEEDED
    assert len(server.requests) == 1


async def test_private_networks_are_refused_by_default_and_metadata_even_when_they_are_allowed() -> None:
    private = HttpSettings(allow_private=True)
    assert "allow_private" in ((await run("http://x.example/", names=Names(["192.168.7.7"]))).error or "")
    for address in ("100.100.100.200", "fd00:ec2::254"):
        assert "metadata" in ((await run("http://x.example/", private, Names([address]))).error or "")


async def test_hosts_that_are_allowed_by_name_are_not_checked() -> None:
    async with serving(always()) as server:
        allowed = HttpSettings(allow_hosts=frozenset({"Inside.Example"}))
        end = await run(server.url(host="inside.example"), allowed, Names(["127.0.0.1"]))
        other = await run(server.url(host="x.inside.example"), allowed, Names(["127.0.0.1"]))
    assert (end.outcome, other.permanent) == (Outcome.SUCCEEDED, True)


async def test_names_without_addresses_may_come_back() -> None:
    end = await run("http://nowhere.example/")
    assert (end.outcome, end.permanent) == (Outcome.FAILED, False)
    assert end.error == "no connection to nowhere.example: no address for the name nowhere.example"


async def test_a_name_server_that_hangs_takes_the_time_for_connecting_only() -> None:
    async def hang(_host: str, _port: int) -> Sequence[str]:
        await asyncio.get_running_loop().create_future()
        return ()

    executor = HttpExecutor(replace(LOCAL, connect_timeout_ms=50), resolve=hang)
    end = await executor.execute(invitation("http://hang.example/"), 1, cancelled=asyncio.Event())
    await executor.aclose()
    assert (end.error, end.permanent) == ("no connection to hang.example in time", False)


@pytest.mark.parametrize("method,status", [("GET", 302), ("GET", 307), ("POST", 307), ("POST", 302)])
@pytest.mark.parametrize(
    "to", ["http://169.254.169.254/latest/meta-data/iam/", "http://[::ffff:a9fe:a9fe]/iam", "//0xa9fea9fe/iam"]
)
async def test_a_redirect_to_metadata_goes_nowhere(method: str, status: int, to: str) -> None:
    """Case htp-11."""
    async with serving(always(f"{status} Found", headers=f"location: {to}\r\n")) as server:
        end = await run(server.url(), LOCAL, method=method)
    assert (end.outcome, end.permanent, len(server.requests)) == (Outcome.FAILED, True, 1)
    assert ("metadata service" in (end.error or "")) == (method == "GET")
    assert "iam" not in (end.error or "")


async def test_the_environments_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(always()) as proxy, serving(always()) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        end = await run(server.url(), LOCAL)
    assert end.outcome is Outcome.SUCCEEDED
    assert (len(proxy.requests), len(server.requests)) == (0, 1)
