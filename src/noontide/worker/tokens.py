"""Attempts by run id and token: those under way, and the latest that are not any more."""

from __future__ import annotations

from collections import OrderedDict

from noontide.worker.holding import Holding


class Tokens:
    """Which token is whose, once per token. over_max: attempts that are over and still known.

    A grant may come again after its attempt has ended here or was passed on: the claim was repeated, or the
    invitation came twice and was claimed before the owner read the end. It must not start the attempt again.
    """

    def __init__(self, over_max: int) -> None:
        self._held: dict[tuple[str, int], Holding] = {}
        # A dict finds its first key by looking over all that are gone.
        self._over = OrderedDict[tuple[str, int], None]()
        self._over_max = over_max

    def get(self, run_id: str, token: int) -> Holding | None:
        """The attempt under way with this token."""
        return self._held.get((run_id, token))

    def hold(self, holding: Holding) -> None:
        """An attempt has got its token."""
        self._held[holding.invitation.run_id, holding.token] = holding

    def let_go(self, holding: Holding) -> None:
        """An attempt is over here; one that was never granted leaves nothing."""
        if not holding.token:
            return
        key = holding.invitation.run_id, holding.token
        self._held.pop(key, None)
        self._over[key] = None
        if len(self._over) > self._over_max:
            self._over.popitem(last=False)

    def is_over(self, run_id: str, token: int) -> bool:
        """Whether nothing may be done for this token any more, as far as it is still known."""
        return (run_id, token) in self._over
