"""`POST /v1/jobs:batch`: many definitions, one a line, with a verdict for each line in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import body_of
from noontide.apps.api.drafts import Drafter
from noontide.apps.api.principal import Operator
from noontide.apps.api.problems import ApiProblem, invalid
from noontide.apps.api.services import settings_of, writer_of
from noontide.apps.api.writing import Asked, Outcome
from noontide.core.errors import InvalidDefinition
from noontide.records.requests import Kind

router = APIRouter(prefix="/v1", tags=["jobs"])
LINES_TYPES = frozenset(("application/x-ndjson", "application/jsonl", "application/json-lines"))
CHUNK_LINES = 1_000
"""Lines that are under way together."""
YIELD_EVERY = 50
"""Lines that are checked without letting others have a turn."""


class Mode(StrEnum):
    """What becomes of an id that is there already."""

    CREATE = "create"
    """Its line is a conflict."""
    REPLACE = "replace"
    """The line becomes its whole definition."""


@router.post("/jobs:batch", summary="Create or replace many jobs")
async def batch(
    request: Request,
    who: Operator,
    mode: Annotated[Mode, Query(description="What becomes of an id that is there already.")] = Mode.CREATE,
) -> Response:
    """JSON Lines, a definition each; back come lines in the same order: `line`, `status`, `id`, and `etag` or problem.

    One bad line does not keep the others out. A batch that broke off can be sent again with `mode=replace`, or with
    idempotency keys.
    """
    lines = [line for line in (await body_of(request, LINES_TYPES)).split(b"\n") if line.strip()]
    most = settings_of(request).batch_max_lines
    if len(lines) > most:
        raise ApiProblem(413, "too-large", f"a batch has at most {most} lines, not {len(lines)}")
    drafter = Drafter.of(request, who)
    writer = writer_of(request)
    answers: list[bytes] = []
    for start in range(0, len(lines), CHUNK_LINES):
        checked = [each async for each in _checked(drafter, lines[start : start + CHUNK_LINES], mode)]
        asked = [each for each in checked if isinstance(each, Asked)]
        outcomes = iter(await writer.ask_many(asked))
        for number, each in enumerate(checked, start=start + 1):
            answers.append(_answer(number, each, next(outcomes) if isinstance(each, Asked) else each))
    return Response(b"".join(answers), media_type="application/x-ndjson")


async def _checked(drafter: Drafter, lines: list[bytes], mode: Mode) -> AsyncIterator[Asked | ApiProblem]:
    """A request for each line that can be accepted, a problem for the others."""
    for number, line in enumerate(lines):
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        try:
            draft = drafter.new(line, None)
        except InvalidDefinition as refused:
            yield invalid(refused)
            continue
        yield Asked(
            kind=Kind.DEFINE,
            job_id=draft.job.id,
            value=line,
            who=drafter.who,
            tenant=None if drafter.who.everywhere else draft.job.tenant,
            must_be_new=mode is Mode.CREATE,
            idempotency_key=draft.idempotency_key,
        )


def _answer(number: int, asked: Asked | ApiProblem, outcome: Outcome | ApiProblem | str) -> bytes:
    """One line. A string is the id of a request that nobody has decided yet."""
    found: Mapping[str, Any]
    job_id = asked.job_id if isinstance(asked, Asked) else None
    match outcome:
        case ApiProblem():
            found = {"line": number, "id": job_id, **outcome.document()}
        case str():
            found = {"line": number, "status": 202, "id": job_id, "request": f"/v1/requests/{outcome}"}
        case _:
            found = {"line": number, "status": 200 if outcome.repeated else 201, "id": job_id, "etag": outcome.etag}
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)
