"""How much of what is due a cycle takes."""

from __future__ import annotations

from noontide.actors.appetite import Appetite


def test_it_grows_while_there_is_more_and_begins_anew_after_a_rest() -> None:
    appetite = Appetite(first=200, most=1_600)
    taken = []
    for due in (200, 400, 800, 1_600, 1_600, 801, 800, 200):
        taken.append(appetite.due)
        appetite.took(due)
    assert taken == [200, 400, 800, 1_600, 1_600, 1_600, 1_600, 200]


def test_it_never_exceeds_the_most() -> None:
    appetite = Appetite(first=200, most=16)
    assert appetite.due == 16
    appetite.took(16)
    assert appetite.due == 16
