"""The server's side of an HTTP/1.1 connection, which does not wait for ever for the head of a request."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_S = 10.0
"""How long a client may take from the connection, or from the first byte, to the end of the head."""
HEAD_MAX_BYTES = 64 * 1024


class ImpatientProtocol(HttpToolsProtocol):
    """Closes connections that send no complete head in time, or one without end.

    Between requests the server's own keep-alive timeout counts, for bodies the application's.
    """

    head_s = HEAD_S
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the class has it
        """Somebody has connected."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Somebody is gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something has come; as long as it is no whole head, it must be small and not take long."""
        super().data_received(data)
        if not self._awaits_head():
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_MAX_BYTES:
            self.transport.close()
        elif self._timer is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._stop_waiting()
        self._head_bytes = 0
        super().on_headers_complete()

    def _awaits_head(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever its type says
        return cycle is None or cycle.response_complete

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.head_s, self._give_up)

    def _stop_waiting(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()
