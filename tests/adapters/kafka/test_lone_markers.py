"""When a member of a share group leaves and joins again because of markers that its client does not acknowledge."""

from __future__ import annotations

from collections import Counter

from noontide.adapters.kafka.group_thread import POLL_S
from noontide.adapters.kafka.share_group import LoneMarkers

EARLY_S = LoneMarkers.EARLY_S - 0.001


class Polls:
    """Polls one after the other; time is `now_s`."""

    def __init__(self) -> None:
        self.markers = LoneMarkers()
        self.now_s = 100.0
        self._offsets: Counter[int] = Counter()

    def poll(self, records: int, *, lasts_s: float = POLL_S, partition: int = 0) -> bool:
        """One poll that brings the next records of a partition; whether the member is to leave after it."""
        began_s, self.now_s = self.now_s, self.now_s + lasts_s
        first = self._offsets[partition]
        self._offsets[partition] += records
        places = [(partition, offset) for offset in range(first, first + records)]
        self.markers.polled(places, began_s=began_s, ended_s=self.now_s)
        return self.markers.are_in_the_way


def test_records_without_a_marker_alone_never_make_it_leave() -> None:
    polls = Polls()
    assert not any(polls.poll(500, lasts_s=0.001) for _ in range(100))


def test_a_poll_that_waited_in_vain_brought_no_marker() -> None:
    polls = Polls()
    polls.poll(0)
    assert not polls.poll(LoneMarkers.SPAN_MAX + 1)


def test_after_a_marker_alone_it_leaves_before_the_broker_hands_out_no_more() -> None:
    polls = Polls()
    polls.poll(0, lasts_s=EARLY_S)
    assert not polls.poll(LoneMarkers.SPAN_MAX)
    assert polls.poll(1)


def test_each_partition_has_its_own_limit() -> None:
    polls = Polls()
    polls.poll(0, lasts_s=EARLY_S)
    assert not any(polls.poll(LoneMarkers.SPAN_MAX, partition=partition) for partition in range(8))
    assert polls.poll(1, partition=7)


def test_markers_between_records_count_too() -> None:
    markers = LoneMarkers()
    markers.polled([], began_s=1.0, ended_s=1.0)
    markers.polled([(0, 100)], began_s=1.0, ended_s=1.1)
    markers.polled([(0, 100 + LoneMarkers.SPAN_MAX)], began_s=1.1, ended_s=1.2)
    assert markers.are_in_the_way


def test_a_marker_that_comes_again_is_the_same_one() -> None:
    polls = Polls()
    polls.poll(0, lasts_s=EARLY_S)
    polls.poll(LoneMarkers.SPAN_MAX)
    polls.now_s += 15
    assert not polls.poll(0, lasts_s=EARLY_S)
    assert polls.poll(1)


def test_a_marker_that_does_not_come_again_was_given_up_by_the_broker() -> None:
    polls = Polls()
    polls.poll(0, lasts_s=EARLY_S)
    polls.poll(LoneMarkers.SPAN_MAX)
    polls.now_s += LoneMarkers.AGAIN_AFTER_S
    assert not polls.poll(LoneMarkers.SPAN_MAX)


def test_what_brought_much_and_then_nothing_may_stand_still() -> None:
    polls = Polls()
    polls.poll(LoneMarkers.SPAN_MAX + 1, lasts_s=0.001)
    waited = 0
    while not polls.poll(1, lasts_s=POLL_S, partition=1):
        waited += 1
    assert abs(waited * POLL_S - LoneMarkers.QUIET_S) <= POLL_S


def test_what_brought_little_and_then_nothing_is_quiet() -> None:
    polls = Polls()
    polls.poll(LoneMarkers.SPAN_MAX, lasts_s=0.001)
    assert not any(polls.poll(0) for _ in range(100))


def test_while_the_worker_is_full_no_partition_is_taken_to_stand_still() -> None:
    polls = Polls()
    polls.poll(LoneMarkers.SPAN_MAX + 1, lasts_s=0.001)
    polls.now_s += 60.0
    assert not polls.poll(0)
