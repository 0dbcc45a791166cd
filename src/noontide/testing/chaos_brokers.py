"""What chaos does to the brokers of an embedded cluster: one at a time is killed, frozen or ended, and comes back.

With three replicas of which two must be in sync, any one broker may be missing. So the next blow falls only when every
partition has all its replicas in sync again.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.foreign_topics import Replicas, replicas_of
from noontide.core.errors import NoontideError

LOOK_TIMEOUT_S: Final = 2.0
START_TIMEOUT_S: Final = 240.0
"""On a machine with other things to do; the others keep what the broker led."""


class BrokerBlow(StrEnum):
    """What can happen to a broker. The leader is that of `state`/0, the controller that of the cluster."""

    KILL_LEADER = "kill leader"
    KILL_CONTROLLER = "kill controller"
    FREEZE = "freeze broker"
    KILL = "kill broker"


@dataclass(slots=True, kw_only=True)
class Brokers:
    """The brokers of one cluster. state_topic: the one whose first partition has "the leader"."""

    kafka: EmbeddedKafka
    connection: KafkaConnection
    state_topic: str
    _down: int | None = None
    _frozen: bool = False
    _back_s: float = 0.0
    _starting: threading.Thread | None = None
    _failed: list[Exception] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether all brokers are there and every partition has all its replicas in sync."""
        if self._down is not None:
            return False
        found = self._look()
        return found is not None and found.in_sync and found.brokers == self.kafka.brokers

    def _look(self) -> Replicas | None:
        return replicas_of(self.connection, self.state_topic, timeout_s=LOOK_TIMEOUT_S)

    def strike(self, blow: BrokerBlow, number: int, pause_s: float) -> str | None:
        """Let a blow fall on a broker (`number` chooses where the blow does not); says on whom, None when not now."""
        if self.kafka.brokers < 2 or not self.whole:
            return None
        index = self._victim(blow, number)
        if index is None:
            return None
        self._down, self._frozen = index, blow is BrokerBlow.FREEZE
        self._back_s = time.monotonic() + pause_s
        if self._frozen:
            self.kafka.pause(index)
        else:
            self.kafka.kill(index)
        return f"{index}"

    def revive(self) -> None:
        """Bring back whoever has been away for long enough. Raises NoontideError when a broker does not start again."""
        if self._failed:
            raise NoontideError(f"a broker did not come back: {self._failed[0]}")
        if self._down is None or time.monotonic() < self._back_s or self._starting is not None:
            return
        if self._frozen:
            self.kafka.resume(self._down)
            self._down = None
        else:
            self._starting = threading.Thread(target=self._start, args=(self._down,), daemon=True)
            self._starting.start()

    def come_back(self) -> None:
        """Do not let anybody wait any longer."""
        self._back_s = 0.0

    def _start(self, index: int) -> None:
        try:
            self.kafka.start_broker(index, timeout_s=START_TIMEOUT_S)
        except NoontideError as error:
            self._failed.append(error)
        self._down = self._starting = None

    def _victim(self, blow: BrokerBlow, number: int) -> int | None:
        found = self._look()
        match blow:
            case BrokerBlow.KILL_LEADER:
                return None if found is None or found.leader is None else found.leader - 1
            case BrokerBlow.KILL_CONTROLLER:
                return self._controller()
            case _:
                return number % self.kafka.brokers

    def _controller(self) -> int | None:
        """As the files of the quorum say: a broker that is asked names any broker."""
        votes = [self._vote(self.kafka.log_path(index).parent / "data") for index in range(self.kafka.brokers)]
        epoch, leader = max(votes)
        return leader - 1 if epoch >= 0 and leader > 0 else None

    def _vote(self, data: Path) -> tuple[int, int]:
        try:
            found = orjson.loads((data / "__cluster_metadata-0" / "quorum-state").read_bytes())
            return int(found["leaderEpoch"]), int(found["leaderId"])
        except (OSError, ValueError, KeyError):
            return -1, -1
