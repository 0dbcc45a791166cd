"""Ports for brokers: the ones of the last start when they are free, else new ones the kernel does not hand out."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError, PortInUseError

HOST: Final = "127.0.0.1"
_LOWEST: Final = 20_000
_HIGHEST: Final = 32_000
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Whether a listener can bind the port now; connections in TIME_WAIT do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def wanted_ports(*, first: int, names: tuple[str, ...], remembered: dict[str, int]) -> dict[str, int]:
    """A port per listener name: consecutive from `first`, or, when it is 0, remembered or new ones.

    Raises EmbeddedKafkaError when a port that was asked for is taken.
    """
    if first:
        return {name: _checked(first + offset) for offset, name in enumerate(names)}
    fresh = _unused(set(remembered.values()))
    kept = {name: port for name, port in remembered.items() if name in names and is_free(port)}
    return {name: kept.get(name) or next(fresh) for name in names}


def _checked(port: int) -> int:
    if not is_free(port):
        raise PortInUseError(port)
    return port


def _unused(avoided: set[int]) -> Iterator[int]:
    """Free ports in random order, below the range the kernel takes for outgoing connections.

    A client that reconnects to a dead broker's port within that range can be given the very same port as its own
    and so connect to itself, which keeps the broker from coming back.
    """
    candidates = list(range(_LOWEST, min(_HIGHEST, _lowest_ephemeral())))
    random.shuffle(candidates)
    yield from (port for port in candidates if port not in avoided and is_free(port))
    raise EmbeddedKafkaError(f"no free port between {_LOWEST} and {_HIGHEST}")


def _lowest_ephemeral() -> int:
    try:
        lowest = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST
    return lowest if lowest > _LOWEST + 1_000 else _HIGHEST
