"""The guard: which addresses are nobody's target.

Judged by tables of our own, so that every Python version refuses the same. Sources: the IANA special-purpose address
registries (RFC 6890), and the documentation of the clouds for their metadata services.
"""

from __future__ import annotations

import re
import socket
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Kind(StrEnum):
    """What an address is when it is not public."""

    METADATA = "a metadata service"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    UNSPECIFIED = "unspecified"
    MULTICAST = "multicast"
    PRIVATE = "private"
    RESERVED = "reserved"


_TABLE: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.METADATA: (
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.123",  # EC2 and most others; ECS, EKS, time
        "100.100.100.200", "168.63.129.16", "192.0.0.192",  # Alibaba, Azure, Oracle
        "fd00:ec2::/32", "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe",  # EC2, Google, Scaleway, OpenStack
    ),
    Kind.LOOPBACK: ("127.0.0.0/8", "::1"),
    Kind.LINK_LOCAL: ("169.254.0.0/16", "fe80::/10"),
    Kind.UNSPECIFIED: ("0.0.0.0/8", "::"),
    Kind.MULTICAST: ("224.0.0.0/4", "ff00::/8"),
    Kind.PRIVATE: (
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10", "64:ff9b:1::/48",
    ),
    Kind.RESERVED: (
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20",
    ),
}  # fmt: skip
_NETWORKS: Final[tuple[tuple[Network, Kind], ...]] = tuple(
    (ip_network(network), kind) for kind, networks in _TABLE.items() for network in networks
)
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_TEREDO: Final = IPv6Network("2001::/32")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_LAST_32_BITS: Final = tuple(
    map(IPv6Network, ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"))  # mapped, translated (SIIT), NAT64
)
_COMPATIBLE: Final = IPv6Network("::/96")
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
_32_BITS: Final = 0xFFFF_FFFF

_looks_numeric = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?").fullmatch


def setting_for(kind: Kind) -> str:
    """The setting that permits addresses of this kind."""
    match kind:
        case Kind.LOOPBACK:
            return "allow_loopback"
        case Kind.PRIVATE:
            return "allow_private"
        case _:
            return "allow_hosts"


def kinds(address: Address) -> frozenset[Kind]:
    """What is not public about an address, or about an IPv4 address that hides in it; empty = a public address."""
    if isinstance(address, IPv4Address):
        return _kinds_by_table(address)
    hidden = embedded(address)
    found = frozenset[Kind]().union(*map(_kinds_by_table, hidden))
    return found if hidden and _stands_for_another(address) else found | _kinds_of_v6(address)


def embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to this address may end at."""
    number = int(address)
    if any(address in network for network in _LAST_32_BITS):
        return (IPv4Address(number & _32_BITS),)
    if address in _COMPATIBLE and number > 1:
        return (IPv4Address(number & _32_BITS),)
    if address in _SIX_TO_FOUR:
        return (IPv4Address(number >> 80 & _32_BITS),)
    if address in _TEREDO:  # the server, and the client with all bits turned (RFC 4380, section 4)
        return (IPv4Address(number >> 64 & _32_BITS), IPv4Address(~number & _32_BITS))
    if number >> 32 & _32_BITS in _ISATAP:
        return (IPv4Address(number & _32_BITS),)
    return ()


def literal(host: str) -> Address | None:
    """The address that a host spells out, in any form that systems read: 127.1, 0x7f.1, 017700000001, 2130706433.

    None = a name. Raises ValueError for what looks like an address and is none.
    """
    if ":" in host:
        return ip_address(host)
    if not _looks_numeric(host):
        return None
    try:
        return IPv4Address(socket.inet_aton(host.removesuffix(".")))
    except OSError:
        raise ValueError(f"{host} is not an address") from None


def _stands_for_another(address: IPv6Address) -> bool:
    """Nothing but its IPv4 address matters of this one."""
    return any(address in network for network in (*_LAST_32_BITS, _SIX_TO_FOUR))


def _kinds_of_v6(address: IPv6Address) -> frozenset[Kind]:
    found = _kinds_by_table(address)
    return found or (frozenset() if address in _PUBLIC_V6 else frozenset({Kind.RESERVED}))


def _kinds_by_table(address: Address) -> frozenset[Kind]:
    """All kinds but the weaker one where two agree: a metadata address in a private network is not merely private."""
    found = {kind for network, kind in _NETWORKS if address in network}
    return frozenset({Kind.METADATA}) if Kind.METADATA in found else frozenset(found)
