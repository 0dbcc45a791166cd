"""Limits of an API node, each with a name and a unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from noontide.core.limits import KIB, Limits

SECOND_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """What one API node takes, and how long it waits."""

    definition: Limits = field(default_factory=Limits)
    """What a definition may be."""
    body_max_bytes: int = 384 * KIB
    """Bytes of a request's body, unless the endpoint says otherwise."""
    batch_max_bytes: int = 64 * 1024 * KIB
    """Bytes of one `jobs:batch`."""
    batch_max_lines: int = 100_000
    """Lines of one `jobs:batch`."""
    body_wait_ms: int = 20 * SECOND_MS
    """How long a client may take to send a body (a batch: this long without sending anything)."""
    concurrency_max: int = 12_000
    """Requests under way at once; more are answered 503."""
    bodies_max_bytes: int = 512 * 1024 * KIB
    """Bytes of bodies of all requests under way; what comes beyond is answered 503."""
    verdict_wait_ms: int = 10 * SECOND_MS
    """How long a write waits for the owner's verdict before it is answered 202 with a URL to ask again."""
    write_gather_ms: int = 5
    """How long a write waits for others to go to the brokers with it: longer costs brokers and owners less."""
    send_wait_ms: int = 10 * SECOND_MS
    """How long a write may wait for the brokers to take it; then 503."""
    owner_wait_ms: int = 5 * SECOND_MS
    """How long a read waits for an owner while a partition moves; then 503."""
    partial_wait_ms: int = 1 * SECOND_MS
    """How long a forecast waits for an owner while a partition moves; then it says what is missing."""
    scaling_minutes: int = 5
    """Within how many minutes the workers said to be needed get through what waits and what comes."""
    scaling_concurrency: int = 100
    """Places of one worker, for the same."""
    scaling_utilisation_percent: int = 80
    """The part of the places that is to be in use."""
    scaling_refresh_ms: int = 30 * SECOND_MS
    """How often the metrics `noontide_workers_needed` and `noontide_places_needed` are worked out."""
    history_wait_ms: int = 2 * SECOND_MS
    """How long an answer waits for the history in PostgreSQL; then it says that older executions are not reachable."""
    history_rest_ms: int = 5 * SECOND_MS
    """How long the history is not asked after it did not answer."""
    slow_lines: int = 4
    """Connections to each owner for questions that may take long, such as lists."""
    retry_after_sec: int = 2
    """What `Retry-After` says while a partition moves."""
    requests_per_second: int = 1_000
    """Requests per second of one token or user, on average and per node; a token may have a rate of its own."""
    request_burst_sec: int = 2
    """Seconds of that rate that may come at once."""
    lease_wait_max_ms: int = 30 * SECOND_MS
    """How long a worker in another language may wait for runs in one request."""
    lease_runs_max: int = 500
    """Runs in one lease, and in one heartbeat."""
    lease_groups_max: int = 32
    """Different lanes and sets of handlers that this node leases runs of at once; more are answered 503."""
    lease_idle_ms: int = 60 * SECOND_MS
    """A lane and set of handlers that nobody asks for runs of for so long is let go."""
    live_streams_max: int = 500
    """Pages that are told at once what changes (`/v1/live`); more are answered 503 and ask by themselves."""
    live_streams_each_max: int = 25
    """The same, of one token or user."""
    live_watches_max: int = 16
    """Addresses that one stream watches."""
    live_looks_max: int = 1_000
    """Different addresses that this node looks at for all streams; those beyond are answered 503."""
    live_answer_max_bytes: int = 512 * KIB
    """A larger answer is not sent over a stream; whoever wants it asks."""
    live_share_percent: int = 20
    """What is watched is looked at for this share of the time at most: an answer that takes long is asked for less."""
    live_beat_ms: int = 10 * SECOND_MS
    """A stream says something at least so often, so that both sides notice when it is cut."""
    live_length_ms: int = 300 * SECOND_MS
    """A stream ends after so long; who follows begins another, for which its token must still be good."""
    page_max: int = 1_000
    """Items on one page."""
    preview_max: int = 1_000
    """Occurrences in one preview."""
