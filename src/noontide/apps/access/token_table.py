"""The tokens of the configuration, ready to be compared with what somebody presents."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from noontide.core.access import Principal
from noontide.core.errors import InvalidDefinition
from noontide.records.config import ConfigView
from noontide.records.tokens import Token, decode_token, token_id_of

_KIND = "token/"


class TokenTable:
    """config: the view as it is now; a token that is revoked there is refused from then on."""

    def __init__(self, config: Callable[[], ConfigView]) -> None:
        self._config = config
        self._read: ConfigView | None = None
        self._tokens: Mapping[str, Token] = {}

    def principal(self, presented: str, *, now_ms: int) -> Principal | None:
        """Whom the text stands for; None when it is no token of ours, not yet, or not any more."""
        token_id = token_id_of(presented)
        token = None if token_id is None else self._current().get(token_id)
        if token is None or not token.is_valid(presented, now_ms=now_ms):
            return None
        return token.principal()

    def _current(self) -> Mapping[str, Token]:
        view = self._config()
        if view is not self._read:
            self._tokens = {token.id: token for token in tokens_of(view)}
            self._read = view
        return self._tokens


def tokens_of(view: ConfigView) -> list[Token]:
    """All tokens, by id; what cannot be read is none."""
    found = []
    for key in sorted(view.documents):
        if key.startswith(_KIND):
            try:
                found.append(decode_token(key.removeprefix(_KIND), view.documents[key]))
            except InvalidDefinition:
                continue
    return found
