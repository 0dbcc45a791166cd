"""What API nodes ask a scheduler process, and what it answers: JSON over HTTP/1.1.

    POST /internal/ask        a list of questions; a list of answers in the same order
    GET  /internal/verdicts   a stream of lines, one `Lines` per cycle that decided requests of API nodes
    GET  /internal/health     who this is

Each request carries `Authorization: Bearer <secret>`. A question about a slot that is not owned here is answered with
`Moved`: ask the directory again.
"""

from __future__ import annotations

import msgspec

from noontide.apps.port.wire_jobs import (
    NOTHING,
    Answer,
    DuePage,
    FoundJob,
    FoundJobs,
    JobFilter,
    JobPage,
    Jobs,
    Question,
    due_place,
)  # fmt: skip

__all__ = ("NOTHING", "DuePage", "FoundJob", "FoundJobs", "JobFilter", "JobPage", "Jobs", "due_place")
ASK, VERDICTS, HEALTH = "/internal/ask", "/internal/verdicts", "/internal/health"


def text_of(raw: msgspec.Raw) -> bytes | None:
    """The JSON text; None where there is nothing."""
    text = bytes(raw)
    return None if text == b"null" else text


class RunStory(Question, tag="run"):
    """What is known of a run."""

    slot: int
    run_id: str


class Leases(Question, tag="leases"):
    """Runs of one slot, as far as they are live."""

    slot: int
    run_ids: list[str]


class LivePage(Question, tag="live"):
    """Runs that are live, in the order of their ids.

    also_closed_after: of each slot, runs that were closed from these offsets on too.
    """

    slots: list[int]
    after: str
    limit: int
    states: list[str] = []
    tenants: list[str] | None = None
    job_id: str | None = None
    also_closed_after: dict[str, int] | None = None


class DeadPage(Question, tag="dead"):
    """Runs that can be redriven, in the order of their ids."""

    slots: list[int]
    after: str
    limit: int
    states: list[str] = []
    tenants: list[str] | None = None
    job_id: str | None = None


class Executions(Question, tag="executions"):
    """The last line of each run and decision of a job, the latest nominal time first.

    after: nominal time (ms) and run id behind which to begin. since_ms: due from then on; then come decisions over
    many that begin earlier and reach it. tenants: whose; None = anybody's.
    """

    slot: int
    job_id: str
    limit: int
    after: tuple[int, str] | None = None
    since_ms: int | None = None
    tenants: list[str] | None = None


class History(Question, tag="history"):
    """The last closed runs of some slots, each slot's newest first. before: offset of each slot.

    since_ms: those that ended then or later.
    """

    slots: list[int]
    limit: int
    states: list[str] = []
    before: dict[str, int] | None = None
    tenants: list[str] | None = None
    job_id: str | None = None
    since_ms: int | None = None


class Verdicts(Question, tag="verdicts"):
    """What was decided about requests of one slot: partition, offset, append time of each."""

    slot: int
    wanted: list[tuple[int, int, int]]


class Workers(Question, tag="workers"):
    """Who holds runs of some slots, and what waits in each lane."""

    slots: list[int]


class Shares(Question, tag="shares"):
    """What a tenant has of what is limited, and its runs in each lane, in some slots."""

    slots: list[int]
    tenant: str


class Forecast(Question, tag="forecast", kw_only=True):
    """Runs of each minute to come. from_ms: a whole minute; tenants: whose, None = of all.

    by: "tenant", "lane" or "target" for a series of each; "" = none. names_max: of them, the largest; the others are
    put together. details: minutes about which everything is wanted.
    """

    slots: list[int]
    from_ms: int
    minutes: int
    tenants: list[str] | None = None
    by: str = ""
    names_max: int = 50
    details: list[int] = []


class Ended(Question, tag="ended"):
    """Runs that ended in some minutes of some slots. first, stop: minutes since the epoch; tenants: None = of all."""

    slots: list[int]
    first: int
    stop: int
    tenants: list[str] | None = None


class RunContent(Question, tag="content"):
    """What a run was given: the definition it was claimed with, or the job as it is now."""

    slot: int
    run_id: str


class Ties(Question, tag="ties"):
    """Who waits for some jobs, and for whom they wait; all of one slot."""

    slot: int
    ids: list[str]


class Loads(Question, tag="loads"):
    """What each lane has to do in some slots."""

    slots: list[int]


Asked = (
    Jobs
    | JobPage
    | DuePage
    | RunStory
    | RunContent
    | Leases
    | LivePage
    | DeadPage
    | Executions
    | History
    | Verdicts
    | Workers
    | Shares
    | Forecast
    | Ended
    | Loads
    | Ties
)


class Moved(Answer, tag="moved"):
    """A slot of the question is not owned here, or cannot be read just now."""

    slot: int


class FoundRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run. live, dead: the record as on `leases`; closed: its lines of `executions`, the newest first.

    lease: of one that a worker holds, (ms since it was heard of, ms until it is lost).
    """

    id: str
    live: msgspec.Raw = NOTHING
    dead: msgspec.Raw = NOTHING
    closed: list[msgspec.Raw] = []
    lease: tuple[int, int] | None = None


class FoundRuns(Answer, tag="runs"):
    """Runs in the order of their ids. ends: where each slot's executions ended; reached: as for jobs."""

    runs: list[FoundRun]
    ends: dict[str, int] = {}
    reached: str | None = None


class FoundExecutions(Answer, tag="executions"):
    """Lines of `executions`. complete_since_ms: what was appended from then on is known here; None = nothing is."""

    lines: list[msgspec.Raw]
    complete_since_ms: int | None = None


class Line(msgspec.Struct, kw_only=True):
    """A line of `executions` and where it is."""

    slot: int
    offset: int
    appended_ms: int
    execution: msgspec.Raw


class Kept(msgspec.Struct, array_like=True):
    """What is known of a slot's executions. since_ms: append time of the oldest one (None = there are none).

    whole: nothing was forgotten. retention_ms: what is older is forgotten.
    """

    since_ms: int | None
    whole: bool
    retention_ms: int


class Lines(Answer, tag="lines"):
    """Executions, the newest first. more: of each slot, the offset before which more may be found."""

    lines: list[Line]
    more: dict[str, int] = {}
    kept: dict[str, Kept] = {}


class Decided(msgspec.Struct, array_like=True):
    """A verdict: on the request at this partition and offset of `requests.api`; None = not decided yet.

    verdict: as on `state`; cursor: where the job stands now, when that is known.
    """

    partition: int
    offset: int
    verdict: msgspec.Raw
    cursor: msgspec.Raw = NOTHING


class DecidedMany(Answer, tag="verdicts"):
    """Verdicts that are there. open: offsets that are not decided yet; the others are not known (any more)."""

    verdicts: list[Decided]
    open: list[tuple[int, int]] = []


class WorkerCount(msgspec.Struct, kw_only=True):
    """A worker and what it holds."""

    worker: str
    lane: str
    runs: int
    oldest_granted_ms: int


class FoundWorkers(Answer, tag="workers"):
    """Workers, and runs of each lane by state."""

    workers: list[WorkerCount]
    lanes: dict[str, dict[str, int]]


class FoundShares(Answer, tag="shares"):
    """limiters: (limiter, given, running, waiting); lanes: (lane, ready, queued, running, waiting); of these slots."""

    limiters: list[tuple[str, int, int, int]]
    lanes: list[tuple[str, int, int, int, int]]


class FoundForecast(Answer, tag="forecast"):
    """Counts of each minute.

    runs: of all; exact: those among them that recur and insist on their minute; relaxed: what all would be if these
    were relaxed. series: runs of each name of one kind. totals: of each kind ("tenant", "lane", "target"), runs by
    name. details: the same for single minutes. as_of_ms: the oldest look at the jobs; jobs: looked at.
    pending: slots without a forecast yet; cut: slots with more jobs than are looked at; merged: not all told apart.
    """

    runs: list[int]
    exact: list[int]
    relaxed: list[int]
    series: dict[str, list[int]] = {}
    totals: dict[str, dict[str, int]] = {}
    details: dict[int, dict[str, dict[str, int]]] = {}
    as_of_ms: int = 0
    jobs: int = 0
    pending: list[int] = []
    cut: list[int] = []
    merged: bool = False


class FoundEnded(Answer, tag="ended"):
    """Counts by minute since the epoch, as `tallies` has them; minutes without any are left out."""

    minutes: dict[int, list[int]]


class FoundContent(Answer, tag="content"):
    """document: a definition; claimed: whether it is the one the run was claimed with, else the job's present one.

    tenant: whose; changed_ms: when the job's present definition was accepted.
    """

    document: msgspec.Raw = NOTHING
    claimed: bool = False
    tenant: str = ""
    changed_ms: int = 0


class Tied(msgspec.Struct, array_like=True):
    """A job of the graph. after: its upstreams; dependants: jobs that wait for it, if it exists or not."""

    id: str
    exists: bool
    tenant: str = ""
    after: tuple[str, ...] = ()
    dependants: tuple[str, ...] = ()
    state: str = ""
    reason: str | None = None


class FoundTies(Answer, tag="ties"):
    """In the order of the ids."""

    jobs: list[Tied]


class FoundLoads(Answer, tag="loads"):
    """By lane: (ready, queued, running, runs that ended of late, ms that these took together)."""

    lanes: dict[str, tuple[int, int, int, float, float]]


Answered = (
    FoundTies | FoundLoads | FoundShares | Moved | FoundJobs | FoundRuns | Lines | DecidedMany | FoundWorkers
    | FoundForecast | FoundEnded | FoundContent | FoundExecutions
)  # fmt: skip

encode = msgspec.json.Encoder().encode
decode_questions = msgspec.json.Decoder(list[Asked]).decode
decode_answers = msgspec.json.Decoder(list[Answered]).decode
decode_decided = msgspec.json.Decoder(list[Decided]).decode
