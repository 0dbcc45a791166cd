"""What API nodes ask about jobs, and what they are answered; part of `wire`."""

from __future__ import annotations

import msgspec

NOTHING = msgspec.Raw(b"null")


class Question(msgspec.Struct, tag_field="ask", kw_only=True, omit_defaults=True):
    """One question; the classes below say which there are."""


class Jobs(Question, tag="jobs"):
    """The jobs of these ids, all of one slot."""

    slot: int
    ids: list[str]


class JobFilter(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Which jobs are wanted; None = any. labels: name and value (None = any). text: in id, note or target.

    calendar: that use it.
    """

    tenants: tuple[str, ...] | None = None
    state: str | None = None
    target: str | None = None
    text: str | None = None
    labels: tuple[tuple[str, str | None], ...] = ()
    calendar: str | None = None


class JobPage(Question, tag="job-page"):
    """Jobs of some slots in the order of their ids, after an id. prefix: of the ids."""

    slots: list[int]
    after: str
    limit: int
    filter: JobFilter
    prefix: str = ""

    def of(self, slots: list[int]) -> JobPage:
        """The same question about other slots."""
        return msgspec.structs.replace(self, slots=slots)


class DuePage(Question, tag="due-page"):
    """Jobs of some slots in the order of their next starts. after: a start and an id, as `due_place` writes them."""

    slots: list[int]
    after: str
    limit: int
    filter: JobFilter


def due_place(start_ms: int, job_id: str) -> str:
    """Where a job stands in the order of starts, as a text that sorts as they do."""
    return f"{start_ms:015d} {job_id}"


class Answer(msgspec.Struct, tag_field="is", kw_only=True, omit_defaults=True):
    """One answer."""


class FoundJob(msgspec.Struct, kw_only=True):
    """A job and where it stands. document: the accepted definition; cursor: as on `state`. Times in ms."""

    id: str
    tenant: str
    etag: str
    created_ms: int
    document: msgspec.Raw
    cursor: msgspec.Raw = NOTHING


class FoundJobs(Answer, tag="jobs"):
    """In the order of the ids; None for those that are not there.

    reached: the id up to which a page was looked for; None = to the end. scanned: jobs looked at. places: of a page in
    the order of starts, where each job stands in it.
    """

    jobs: list[FoundJob | None]
    reached: str | None = None
    scanned: int = 0
    places: list[str] = []
