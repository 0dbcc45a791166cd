"""The errors of the embedded broker: everything is an EmbeddedKafkaError."""

from __future__ import annotations

from noontide.core.errors import NoontideError


class EmbeddedKafkaError(NoontideError):
    """A broker cannot be had; the message is one line that says what is wrong and what to do about it."""


class PortInUseError(EmbeddedKafkaError):
    """Somebody else listens on a broker's port."""

    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is in use: stop what listens on it, or choose another port (0 for any)")
        self.port = port
