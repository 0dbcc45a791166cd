"""A target that does each run once, however often it is asked: plain ASGI and SQLite, to copy and change.

    uvicorn --factory noontide.examples.http_target:app --port 8080

A scheduler that hears nothing asks again: the answer may have been lost on its way, or the work may never have begun.
So this target writes down that a run has begun, and then what it answered; for a day a repeat gets the same answer.
While the first request is still working a repeat is told to come back. A process that dies in the middle leaves a run
that has begun: it is done again after `WORK_MAX_S`. Where that is not good enough, let the work write to the same
database in the transaction that stores the answer.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

KEEP_S = 86_400
WORK_MAX_S = 600
BODY_MAX_BYTES = 1_048_576

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Work = Callable[[str, object], Awaitable[object]]
"""Run id and payload -> something to be answered as JSON. Whatever it raises is a failure that is tried again."""


class Answer(NamedTuple):
    """Status and JSON text."""

    status: int
    body: bytes


BUSY = Answer(503, b'{"detail": "this run is being worked on"}')
OUTDATED = Answer(409, b'{"detail": "a newer attempt of this run has begun"}')

_TABLE = """
CREATE TABLE IF NOT EXISTS runs (
    run_id TEXT PRIMARY KEY, token INTEGER NOT NULL, begun_s INTEGER NOT NULL, status INTEGER, body BLOB
) WITHOUT ROWID
"""
_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"


class Memory:
    """What became of the runs of the last day. SQLite calls take microseconds, so they stay on the event loop."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute(_TABLE)

    def begin(self, run_id: str, token: int) -> Answer | None:
        """None = do the work; anything else is the answer."""
        with self._database:  # one transaction, also among several processes
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(f"DELETE FROM runs WHERE begun_s < {_NOW} - ?", (KEEP_S,))
            found = self._database.execute(
                f"SELECT token, {_NOW} - begun_s, status, body FROM runs WHERE run_id = ?", (run_id,)
            ).fetchone()
            if found is not None:
                known_token, age_s, status, body = found
                if status is not None:
                    return Answer(status, body)
                if token < known_token:
                    return OUTDATED
                if age_s < WORK_MAX_S:
                    return BUSY
            self._database.execute(f"REPLACE INTO runs VALUES (?, ?, {_NOW}, NULL, NULL)", (run_id, token))
        return None

    def answered(self, run_id: str, token: int, answer: Answer) -> None:
        """Keep the answer, unless a newer attempt has taken over meanwhile."""
        self._database.execute(
            "UPDATE runs SET status = ?, body = ? WHERE run_id = ? AND token = ?", (*answer, run_id, token)
        )

    def forget(self, run_id: str, token: int) -> None:
        """The work failed: a repeat may try it again."""
        self._database.execute("DELETE FROM runs WHERE run_id = ? AND token = ? AND status IS NULL", (run_id, token))

    def close(self) -> None:
        self._database.close()


class OncePerRun:
    """The target as an ASGI application."""

    def __init__(self, work: Work, memory: Memory) -> None:
        self._work = work
        self._memory = memory

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError("requests only")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        run_id, token = headers.get("idempotency-key"), headers.get("noontide-token", "0")
        body = await _body(receive)
        if not run_id or not token.isascii() or not token.isdigit():
            answer = Answer(400, b'{"detail": "Idempotency-Key and Noontide-Token say which run this is"}')
        elif body is None:
            answer = Answer(413, b'{"detail": "the payload is too large"}')
        else:
            answer = await self._once(run_id, int(token), body)
        await _send(send, answer)

    async def _once(self, run_id: str, token: int, body: bytes) -> Answer:
        known = self._memory.begin(run_id, token)
        if known is not None:
            return known
        try:
            result = await self._work(run_id, json.loads(body or b"null"))
            answer = Answer(200, json.dumps(result).encode())
        except BaseException:
            self._memory.forget(run_id, token)
            raise  # the server answers 500, which is tried again
        self._memory.answered(run_id, token, answer)
        return answer


async def _body(receive: Receive) -> bytes | None:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY_MAX_BYTES:
            return None
    return body


async def _send(send: Send, answer: Answer) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer.body))]
    if answer is BUSY:
        headers.append((b"retry-after", b"5"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def print_payload(run_id: str, payload: object) -> object:
    """The work of this example."""
    print(f"{run_id}: {json.dumps(payload)}")
    return {"printed": True}


def app() -> OncePerRun:
    """For a server that takes factories; remembers in the file runs.sqlite of the current folder."""
    return OncePerRun(print_payload, Memory("runs.sqlite"))
