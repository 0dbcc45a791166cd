"""Says when a topic of ours is not as its file wants it: somebody changed it by hand, or a new version wants more."""

from __future__ import annotations

import logging

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.topics import ClusterError, plan_topics
from noontide.records.topics import Layout

log = logging.getLogger("noontide.topics")


def differences(connection: KafkaConnection, layout: Layout) -> list[str]:
    """One sentence per difference between the topics and their files. Raises ClusterError."""
    plan = plan_topics(connection, layout)
    missing = [f"topic {wanted.name} does not exist" for wanted in plan.missing]
    changed = [
        f"topic {each.topic}: {each.setting} is {each.old}, not {each.new} ({each.why})" for each in plan.changes
    ]
    return [*missing, *changed]


def warn_of_differences(connection: KafkaConnection, layout: Layout) -> None:
    """Log them, once, at the start of a process. They stop nothing; a cluster that does not say is left in peace."""
    try:
        found = differences(connection, layout)
    except ClusterError as error:
        log.info("the settings of the topics could not be read: %s", error)
        return
    for difference in found:
        log.warning("%s; `noontide topics apply` puts it right", difference)
