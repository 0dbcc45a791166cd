"""Signatures of requests as Standard Webhooks define them (https://www.standardwebhooks.com, version 1)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from noontide.adapters.http.refusals import Unready

SECRET_PREFIX = b"whsec_"


def signing_headers(key: bytes, *, run_id: str, now_s: int, body: bytes) -> list[tuple[bytes, bytes]]:
    """The three headers. key: `whsec_<base64>`, or the bytes themselves; body: as it is sent.

    The message's id is the run's, the same for every attempt; dots in it are escaped because the dot separates what is
    signed. Raises Unready when the key is no base64.
    """
    message_id = run_id.replace(".", "%2E").encode()
    timestamp = b"%d" % now_s
    mac = hmac.digest(_key_bytes(key), b".".join((message_id, timestamp, body)), hashlib.sha256)
    return [
        (b"webhook-id", message_id),
        (b"webhook-timestamp", timestamp),
        (b"webhook-signature", b"v1," + base64.b64encode(mac)),
    ]


def _key_bytes(key: bytes) -> bytes:
    if not key.startswith(SECRET_PREFIX):
        return key
    try:
        return base64.b64decode(key.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise Unready("the signing secret begins with whsec_ but is not base64 after it") from None
