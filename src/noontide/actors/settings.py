"""Limits of the scheduler, each with a name and a unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from noontide.core.limits import Limits

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """How a slot works. Bounds on a cycle keep it short; everything beyond waits for the next one."""

    definition: Limits = field(default_factory=Limits)
    """What a definition may be."""
    inputs_max: int = 2_000
    """Input records per cycle and slot."""
    inputs_max_bytes: int = 8 * 1024 * 1024
    """Bytes of input values per cycle and slot."""
    inbox_high: int = 6_000
    """Unhandled input records per slot at which its inputs are paused; resumed below half."""
    inbox_high_bytes: int = 32 * 1024 * 1024
    """The same in bytes of values."""
    due_max: int = 1_600
    """Occurrences per cycle and slot."""
    due_first: int = 200
    """The same in the first cycle of many; it doubles with each."""
    due_crowded_max: int = 150
    """The same while `due_first` runs or more of the slot wait for permits: whoever is not among them starts sooner."""
    due_max_bytes: int = 8 * 1024 * 1024
    """Bytes of job rows read for occurrences per cycle and slot."""
    range_delete_min: int = 65
    """Due rows of one cycle and partition from which on they are deleted as a range, which must be scanned first."""
    horizon_ms: int = MINUTE_MS
    """How far ahead due rows are held in memory."""
    preload_max: int = 20_000
    """Due rows held in memory per partition."""
    read_ahead_ms: int = 5_000
    """How far ahead the rows of due jobs are read when a slot has nothing else to do."""
    read_ahead_max_bytes: int = 16 * 1024 * 1024
    """Job rows held in memory before they are due, per slot."""
    late_heap_max: int = 256
    """Due rows added behind the horizon before they are merged into the preload."""
    cycle_gap_ms: int = 12
    """Pause between the end of a cycle and the start of the next, so that work gathers."""
    cycle_gap_below: int = 500
    """Records of a cycle from which on the next one follows without that pause: enough has gathered by itself."""
    heartbeat_ms: int = 1_000
    """Longest sleep of a slot."""
    commit_timeout_ms: int = 6_000
    """Longest time for a transaction; beyond it the outcome is in doubt."""
    doubt_pause_ms: int = 50
    """Pause before a replay when doubts follow each other; doubles each time, up to `doubt_pause_max_ms`."""
    doubt_pause_max_ms: int = 5_000
    """Longest pause before a replay."""
    fenced_retry_ms: int = 5_000
    """When another owner took a slot that the group still gives to us: pause before asking for it again."""
    away_ms: int = 2_000
    """A commit in doubt so long after its time limit means that this process was frozen, and that its slot may be
    another one's by now: it is not taken again before the group has had time to say so."""
    session_timeout_ms: int = 6_000
    """Silence after which the group takes a scheduler for dead; not below `group.min.session.timeout.ms`."""
    standby_replicas: int = 1
    """Schedulers that keep a copy of each slot beside its owner, so that a take-over takes seconds. May be 0."""
    standby_poll_ms: int = 500
    """How often a standby copies what is new."""
    standby_records_max: int = 2_000
    """Records that a standby copies in one go."""
    standby_cpu_percent: int = 40
    """Share of one core that the copying of all slots of a process may use."""
    standby_verify_ms: int = MINUTE_MS
    """How often a standby makes sure that it lacks nothing."""
    standby_sweep_ms: int = DAY_MS
    """A standby drops reminders of what was to be forgotten so long ago: by then its owner has forgotten it."""
    standby_retry_ms: int = 2_000
    """Pause before a standby begins again after the log or the disk could not be read."""
    warm_lag_max: int = 20_000
    """Records that a copy may lack and still count as warm: a slot moves from a living owner to warm copies only."""
    warming_retry_ms: int = 10_000
    """Pause before a scheduler asks again for the slots that it has warmed."""
    handover_ms: int = 20_000
    """How long an owner works on after its slot was given to another scheduler, if that does not take it before."""
    handover_poll_ms: int = 100
    """How often it then looks whether the slot is taken, when it has nothing else to do."""
    missed_walk_max: int = 10_000
    """Missed occurrences looked at in one step of a job; the rest follows in the next cycle."""
    catch_up_poll_ms: int = 1_000
    """How often a catch-up (`misfire: run_all`) looks whether its previous run is closed."""
    backfill_cycle_max: int = 500
    """Runs of backfills made per cycle and slot."""
    backfill_live_max: int = 1_000
    """Live runs of a job beyond which a backfill whose runs may overlap makes no more."""
    completed_retention_ms: int = DAY_MS
    """How long a finished job stays visible before it is removed."""
    marker_retention_ms: int = 8 * DAY_MS
    """How long a deleted id is remembered, longer than `requests` are kept, so that stale copies are recognised.

    So long idempotency keys are remembered too, beyond the life of their job."""
    verdict_retention_ms: int = DAY_MS
    """How long verdicts are kept in `state`."""
    dead_retention_ms: int = 30 * DAY_MS
    """How long a dead run can be redriven."""
    forgotten_max: int = 500
    """Verdicts, idempotency keys and dead runs forgotten per cycle."""
    sends_in_flight_max: int = 256
    """Records under way to topics that are not registered, per slot."""
    send_timeout_ms: int = 10_000
    """Longest time for one of those."""
    frames_max: int = 2_000
    """Frames of worker events per cycle and slot."""
    window_min: int = 250
    """Runs offered to a lane whose workers have not claimed any yet, per slot."""
    window_ms: int = 5_000
    """How long the workers of a lane take, at their pace, for what is offered to them and not claimed: so much later
    than others may a run come whose turn it would be."""
    window_max: int = 10_000
    """Most runs offered to a lane and not claimed, per slot; the rest of the backlog waits in order."""
    window_lapse_ms: int = MINUTE_MS
    """A lane in which nothing was claimed for so long counts as not listening: nothing is offered to it twice."""
    offers_kept_ms: int = DAY_MS
    """How long what was offered can be taken: `retention.ms` of `runs.<lane>`. After that, more may be offered."""
    ageing_ms: int = MINUTE_MS
    """Waiting for so long counts as much as one level of priority, within a tenant."""
    grants_max: int = 2_000
    """Permits that one limiter gives per cycle."""
    upstream_wait_ms: int = DAY_MS
    """How long a job waits for upstreams after the first has ended, unless it has a `complete_by`."""
    expiries_max: int = 500
    """Leases that expire per cycle, lane and slot."""
    timeout_grace_ms: int = 5_000
    """What the owner waits beyond a run's timeout, which its worker enforces first."""
    cancel_grace_ms: int = 30_000
    """How long a worker may take to stop a cancelled run before it loses the lease."""
    lane_silence_ms: int = 1_000
    """After so long without events a lane with leases is probed, so that lease time moves on."""
    breaker_open_ms: int = 1_000
    """First pause after a registered topic failed; doubles up to `breaker_open_max_ms`."""
    breaker_open_max_ms: int = 60_000
    """Longest pause of a breaker."""
    checkpoint_ms: int = 30_000
    """How often the index is flushed, so that a restart replays little."""
    checkpoint_max_age_ms: int = 6 * HOUR_MS
    """Older local copies are thrown away: compaction may have removed tombstones they never saw.

    Half of the smallest `delete.retention.ms` (`state` and `leases`: 12 h)."""
    disk_failed_ms: int = 15_000
    """When the disk has failed the indexes for so long, the slots are given to other schedulers, if there are any."""
    disk_calm_ms: int = MINUTE_MS
    """A disk without a failure for so long counts as well again."""
    disk_probe_ms: int = 2_000
    """How often a disk that failed is tried by writing a file of 8 MiB."""
    status_ms: int = 5_000
    """How often owners and standbys say on `owners` how they are; the answer tells the broker's time."""
    recent_executions_per_second: int = 20_000
    """How fast the copy of recent executions that API nodes are shown follows their topic."""
    recent_executions_ms: int = 7 * DAY_MS
    """How long the copy keeps them."""
    search_cpu_percent: int = 30
    """Share of one core that a process may use to look through its jobs for those who search among them."""
    search_piece_ms: int = 20
    """How long one look of a search takes, between two rests; it sees some 5,000 jobs."""
    verdicts_kept_max: int = 100_000
    """Verdicts in memory for API nodes that ask again; older ones are read from the index."""
    forecast_ms: int = DAY_MS
    """How far ahead a forecast looks, at most."""
    forecast_fresh_ms: int = 30_000
    """How old a forecast may be before it is made anew, when somebody asks."""
    forecast_cpu_percent: int = 20
    """Share of one core that a process may use to look at its jobs for a forecast; it takes some 7 us per job."""
    forecast_jobs_max: int = 5_000_000
    """Jobs looked at for a forecast per slot; the answer says when there are more."""
    forecast_groups_max: int = 1_000
    """Tenants, lanes and targets told apart in a forecast, as combinations per slot; 6 KB of memory each."""
    distrust_probe_ms: int = 250
    """The same while the broker's clock is not trusted."""
    hold_poll_ms: int = 20
    """How often a slot that may not fire looks whether it may."""
