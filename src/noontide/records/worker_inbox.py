"""Records of `worker-inbox`: answers to workers, sent after the commit. What is lost is asked for again."""

from __future__ import annotations

import msgspec

INBOX_PARTITIONS = 16


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What an owner says to one worker at once; records of other workers in the same partition are passed over.

    grants: (run id, attempt, token, lease_ms): start it, if the claim was sent less than the lease minus a margin ago.
    denied: (run id, attempt, reason): drop it. cancels: (run id, token, reason): stop it.
    lost: (run id, token): the lease is gone, whatever comes of it will be ignored.
    """

    worker: str
    slot: int
    grants: list[tuple[str, int, int, int]] = []
    denied: list[tuple[str, int, str]] = []
    cancels: list[tuple[str, int, str]] = []
    lost: list[tuple[str, int]] = []

    def __bool__(self) -> bool:
        return bool(self.grants or self.denied or self.cancels or self.lost)


encode_answer = msgspec.json.Encoder().encode
decode_answer = msgspec.json.Decoder(Answer).decode
