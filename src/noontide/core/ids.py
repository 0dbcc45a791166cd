"""Names of jobs and runs: which are legal, and how a run's id is made and taken apart.

    job id   [A-Za-z0-9._~:@-]{1,200}, without "." and ".." (path segments that HTTP clients fold away)
    run id   <job id>:20260301T020000Z         an occurrence; milliseconds only when there are some (...00.250Z)
             <job id>:20260301T020000Z~2       the same time of a job id that was deleted and created again
             <job id>:m4711                    triggered by hand; 4711 is the offset of the request on `requests.api`
             <job id>:m4711-public             the same on another request topic, `requests.public`
             <job id>:m4711-20260301t020000z   an occurrence that the request 4711, a backfill, had made anew
             <job id>:m4711-public-12          found in partition 12 of it, where it does not belong

The last colon parts a run id: what follows it never contains one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID, uuid5

from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_basic

JOB_ID_FORM = "1 to 200 characters of A-Z a-z 0-9 . _ ~ : @ - (and neither '.' nor '..')"
RUN_ID_FORM = (
    "<job id>:20260301T020000Z, with ~2, ~3 for a re-created id, or <job id>:m<offset>[-<domain>[-<partition>]]"
)
IDEMPOTENCY_NAMESPACE = UUID("6f1f4b0e-5d0c-5b7e-9d5a-3f1c8a4e7b21")
"""Root of the ids made from idempotency keys. Changing it would make every retried create a second job."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_matches_job_id = re.compile(r"[A-Za-z0-9._~:@-]{1,200}").fullmatch
_matches_occurrence = re.compile(
    r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(?:\.(\d{3}))?Z(?:~([1-9]\d{0,9}))?", re.ASCII
).fullmatch
_matches_manual = re.compile(r"m(0|[1-9]\d{0,18})(?:-([a-z0-9][a-z0-9_-]{0,70}))?", re.ASCII).fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceRunId:
    """A run id of a scheduled occurrence; `generation` is 1 unless the job id was re-created."""

    job_id: str
    due_ms: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualRunId:
    """A run id of a run that somebody triggered; `offset` is that of the request, `source` its topic."""

    job_id: str
    offset: int
    source: str = ""


RunId = OccurrenceRunId | ManualRunId


def is_job_id(text: str) -> bool:
    """Whether the text is a legal job id."""
    return _matches_job_id(text) is not None and text not in (".", "..")


def parse_job_id(value: object, pointer: str) -> str:
    """The job id, or InvalidDefinition with the legal form."""
    if isinstance(value, str) and is_job_id(value):
        return value
    raise InvalidDefinition.of(pointer, f"is not a job id: {JOB_ID_FORM}")


def run_id(job_id: str, due_ms: int, generation: int) -> str:
    """Id of the run of one occurrence; the same arguments always give the same id.

    due_ms: nominal time, ms since the epoch, within the years 1 to 9999.
    generation: 1 for a job id used for the first time, counted up at each re-creation.
    """
    due = format_basic(due_ms)
    return f"{job_id}:{due}~{generation}" if generation > 1 else f"{job_id}:{due}"


def manual_run_id(job_id: str, offset: int, source: str = "") -> str:
    """Id of a triggered run, named by the offset of its request.

    source: what else tells the request from others of that offset (see the top of this page); "" on `requests.api`.
    """
    return f"{job_id}:m{offset}-{source}" if source else f"{job_id}:m{offset}"


def parse_run_id(value: object, pointer: str) -> RunId:
    """Take a run id apart; InvalidDefinition unless `run_id` or `manual_run_id` would write exactly this text."""
    parsed = _take_apart(value) if isinstance(value, str) else None
    if parsed is None:
        raise InvalidDefinition.of(pointer, f"is not a run id: {RUN_ID_FORM}")
    return parsed


def id_from_idempotency_key(tenant: str, key: str) -> str:
    """Job id of a create that names only its idempotency key: UUIDv5 of the key in the tenant's namespace."""
    return str(uuid5(_tenant_namespace(tenant), key))


@lru_cache(maxsize=1024)
def _tenant_namespace(tenant: str) -> UUID:
    return uuid5(IDEMPOTENCY_NAMESPACE, tenant)


def _take_apart(text: str) -> RunId | None:
    job_id, colon, rest = text.rpartition(":")
    if not colon or not is_job_id(job_id):
        return None
    if manual := _matches_manual(rest):
        return ManualRunId(job_id=job_id, offset=int(manual[1]), source=manual[2] or "")
    if occurrence := _matches_occurrence(rest):
        return _occurrence(job_id, occurrence)
    return None


def _occurrence(job_id: str, found: re.Match[str]) -> OccurrenceRunId | None:
    *parts, millisecond, generation = found.groups()
    if millisecond == "000" or generation == "1":
        return None  # never written: one run has one id
    year, month, day, hour, minute, second = map(int, parts)
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    since = at - _EPOCH
    due_ms = (since.days * 86_400 + since.seconds) * 1000 + int(millisecond or 0)
    return OccurrenceRunId(job_id=job_id, due_ms=due_ms, generation=int(generation or 1))
