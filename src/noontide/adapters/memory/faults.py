"""What goes wrong on purpose in the log in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class CommitFault(Enum):
    """A commit that ends in doubt, and what really became of it."""

    TOOK_EFFECT = "the answer was lost after the commit"
    NO_EFFECT = "the transaction stays open until somebody opens the slot"


@dataclass(slots=True)
class Faults:
    """Switches, read by the log and its clients; all off at first.

    refused_topics: topic to the reason why records for it are refused.
    silent: nothing answers (opening, committing, reading ends and sending fail as after a time limit).
    """

    refused_topics: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    _commits: dict[str, list[CommitFault]] = field(default_factory=dict)

    def doubt_next_commit(self, transactional_id: str, fault: CommitFault) -> None:
        """Let the next commit of this id end in doubt; called twice, the one after it too."""
        self._commits.setdefault(transactional_id, []).append(fault)

    def take_commit_fault(self, transactional_id: str) -> CommitFault | None:
        """The fault of the commit that is under way, if one was ordered."""
        ordered = self._commits.get(transactional_id)
        return ordered.pop(0) if ordered else None

    def refuse(self, topic: str, reason: str = "the topic is sick") -> None:
        """Refuse all records of a topic until `accept`."""
        self.refused_topics[topic] = reason

    def accept(self, topic: str) -> None:
        """End `refuse`."""
        self.refused_topics.pop(topic, None)
