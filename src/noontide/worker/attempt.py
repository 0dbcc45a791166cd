"""One attempt while it is carried out, and how its end is put into words."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, assert_never

import msgspec

from noontide.core.policies import Guarantee
from noontide.records.worker_events import ERROR_MAX_CHARS, End, Outcome
from noontide.worker.app import Handler
from noontide.worker.context import Context
from noontide.worker.errors import Cancelled, PermanentError, RetryLater
from noontide.worker.holding import Holding, Stop
from noontide.worker.payloads import NOTHING, encode_result

log = logging.getLogger("noontide.worker")
_STOPPED: Final = (asyncio.CancelledError, Cancelled)


class Attempt:
    """A granted run in the hands of a thread or of a loop."""

    __slots__ = ("context", "handler", "holding", "task")

    def __init__(self, holding: Holding, handler: Handler, context: Context) -> None:
        self.holding = holding
        self.handler = handler
        self.context = context
        self.task: asyncio.Task[None] | None = None

    def run(self) -> End:
        """Call a plain function to its end, whatever it raises."""
        try:
            arguments = self.handler.arguments(self.context.payload, self.context)
            return self._succeeded(self.handler.function(*arguments))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises ends its attempt and nothing else
            return self._failed(error)

    async def run_async(self) -> End:
        """Await a coroutine function to its end, whatever it raises and however often it is cancelled."""
        try:
            arguments = self.handler.arguments(self.context.payload, self.context)
            return self._succeeded(await self.handler.function(*arguments))
        except BaseException as error:  # noqa: BLE001 - as above; a SystemExit must not reach the loop
            return self._failed(error)

    def _succeeded(self, value: object) -> End:
        try:
            text, truncated = NOTHING if value is None else encode_result(value)
        except TypeError as error:  # the work is done: once more would do it twice, for the same end
            return self._failed(PermanentError(str(error)))
        end = End(run_id=self.holding.invitation.run_id, token=self.holding.token, outcome=Outcome.SUCCEEDED)
        if text:  # an empty Raw of one's own is not the default one: it would be written, as nothing
            end.result, end.truncated = msgspec.Raw(text), truncated
        return end

    def _failed(self, error: BaseException) -> End:
        if isinstance(error, _STOPPED) and self.holding.stop is not None:
            return stopped(self.holding, self.holding.stop)
        end = End(run_id=self.holding.invitation.run_id, token=self.holding.token, outcome=Outcome.FAILED)
        end.error = _text(error)
        if isinstance(error, PermanentError):
            end.permanent = True
        elif isinstance(error, RetryLater):
            end.retry_after_ms = error.after_ms
        known = isinstance(error, PermanentError | RetryLater)
        log.warning(
            "%s: attempt %d failed: %s", end.run_id, self.context.attempt, end.error, exc_info=not known and error
        )
        return end


def stopped(holding: Holding, why: Stop) -> End:
    """The end of an attempt that stopped because it had to."""
    end = End(run_id=holding.invitation.run_id, token=holding.token, outcome=Outcome.FAILED)
    match why:
        case Stop.CANCELLED | Stop.LOST:
            end.outcome = Outcome.CANCELLED
        case Stop.TIMED_OUT:
            end.error = f"timed out after {holding.invitation.timeout_ms / 1000:g} s"
        case Stop.SHUTDOWN if holding.invitation.guarantee is Guarantee.AT_MOST_ONCE:
            end.error = "the worker stopped"  # it has started: handed back it would start again
        case Stop.SHUTDOWN:
            end.outcome = Outcome.HANDED_BACK
        case _:
            assert_never(why)
    return end


def _text(error: BaseException) -> str:
    """Type and message, one that is bound to be JSON."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the exception's own code may be broken too
        message = "(its message cannot be read)"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text[:ERROR_MAX_CHARS].encode("utf-8", "replace").decode()
