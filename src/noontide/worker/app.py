"""The registry of handlers that users fill with `@app.handler(name)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_type_hints

from noontide.core.errors import InvalidDefinition
from noontide.worker.context import Context
from noontide.worker.payloads import Decode, decoder_for

Function = TypeVar("Function", bound=Callable[..., Any])
NAME_FORM: Final = "1 to 200 characters of A-Z a-z 0-9 . _ : -"
matches_name = re.compile(r"[A-Za-z0-9._:-]{1,200}").fullmatch
ARGUMENTS: Final = "(payload), (payload, ctx), (ctx: Context) or nothing"
_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A registered function.

    is_async: a coroutine function: runs on the handlers' event loop instead of a thread.
    decode: makes the payload; None = the function takes none. takes_context: it takes a Context after it.
    """

    name: str
    function: Callable[..., Any]
    is_async: bool
    decode: Decode | None
    takes_context: bool

    def arguments(self, payload: bytes, context: Context) -> tuple[object, ...]:
        """What to call the function with. Raises PermanentError for a payload that does not fit."""
        given = () if self.decode is None else (self.decode(payload),)
        return (*given, context) if self.takes_context else given


class App:
    """Handlers by name. Workers of one group should all have the same ones."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers by name."""
        return self._handlers

    def handler(self, name: str) -> Callable[[Function], Function]:
        """Register a function, plain or `async`, under the name that a job's target gives; the function is unchanged.

        It takes `(payload)`, `(payload, ctx)`, `(ctx: Context)` or nothing. Raises InvalidDefinition for a name or a
        signature that cannot be, or a name that is taken.
        """
        if matches_name(name) is None:
            raise InvalidDefinition.of("/handlers", f"{name!r} is not a handler's name: {NAME_FORM}")
        if name in self._handlers:
            raise InvalidDefinition.of(f"/handlers/{name}", "is registered twice")

        def register(function: Function) -> Function:
            self._handlers[name] = _handler_of(name, function)
            return function

        return register


def _handler_of(name: str, function: Callable[..., Any]) -> Handler:
    hints, parameters = _hints(function), _parameters(name, function)
    takes_context = bool(parameters) and (len(parameters) == 2 or _is_context(parameters[-1], hints))
    payload = parameters[0] if len(parameters) > takes_context else None
    called = function if inspect.isroutine(function) else type(function).__call__
    return Handler(
        name=name,
        function=function,
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called),
        decode=None if payload is None else decoder_for(hints.get(payload, Any), name),
        takes_context=takes_context,
    )


def _parameters(name: str, function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that must be given."""
    found = inspect.signature(function).parameters.values()
    needed = [
        each
        for each in found
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(needed) > 2 or any(each.kind not in _POSITIONAL for each in needed):
        raise InvalidDefinition.of(
            f"/handlers/{name}", "must take (payload), (payload, ctx), (ctx: Context) or nothing"
        )
    return [each.name for each in needed]


def _is_context(parameter: str, hints: Mapping[str, object]) -> bool:
    return hints.get(parameter, Context if parameter == "ctx" else None) is Context


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target)
    except NameError as error:
        raise InvalidDefinition.of("/handlers", f"{target.__qualname__}: an annotation is unknown: {error}") from error
