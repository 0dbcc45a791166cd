"""Records of live runs."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.run import Run, RunState
from noontide.records.leases import decode_lease, encode_lease

instants = st.integers(-(2**40), 2**45)
runs = st.builds(
    Run,
    run_id=st.just("a:20260301T000010Z~2"),
    job_id=st.just("a"),
    tenant=st.text(min_size=1, max_size=20),
    state=st.sampled_from(RunState),
    due_ms=instants,
    start_ms=instants,
    claimed_ms=instants,
    target=st.text(max_size=20),
    attempt=st.integers(0, 1_000),
    token=st.integers(0, 2**53),
    not_before_ms=st.integers(0, 2**45),
    reason=st.none() | st.text(max_size=30),
    waits_for=st.none() | st.just("a:20260301T000000Z"),
    lane=st.just("default"),
    priority=st.integers(0, 9),
    etag=st.text(max_size=20),
    kept=st.booleans(),
    worker=st.none() | st.just("w-1"),
    queued_ms=st.integers(0, 2**45),
    granted_ms=st.integers(0, 2**45),
    complete_by_ms=st.integers(0, 2**45),
    cancel=st.none() | st.text(max_size=20),
    history=st.text(max_size=20),
)


@given(run=runs)
def test_a_run_comes_back(run: Run) -> None:
    assert decode_lease(run.run_id.encode(), encode_lease(run)) == run


def test_what_is_absent_is_left_out() -> None:
    run = Run("a:m1", "a", "t", RunState.PENDING, 1, 2, 3, "kafka://orders")
    assert orjson.loads(encode_lease(run)) == {
        "state": "pending", "job_id": "a", "tenant": "t", "due": 1, "start": 2, "claimed": 3,
        "target": "kafka://orders", "attempt": 0, "token": 0,
    }  # fmt: skip
