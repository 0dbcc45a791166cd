"""What each role may do with Kafka, as a list, and as commands of Kafka's own tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from noontide.records.topics import Layout

TOPIC, GROUP, TRANSACTION, CLUSTER = "topic", "group", "transactional-id", "cluster"
_OPTIONS: Final = {
    TOPIC: "--topic",
    GROUP: "--group",
    TRANSACTION: "--transactional-id",
    CLUSTER: "--cluster",
}
ROLES: Final = ("scheduler", "worker", "api", "agents", "connect", "operator")
READ, WRITE = ("Read", "Describe"), ("Write", "Describe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One thing a role may do. prefixed: whether `name` stands for everything that begins so."""

    role: str
    resource: str
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False


def acls(layout: Layout, *, domains: Sequence[str], lanes: Sequence[str]) -> list[Acl]:
    """Everything that processes, people and services need, and nothing else; role `service:<domain>` defines jobs."""
    found = [*_scheduler(layout), *_worker(layout, lanes), *_api(layout, lanes), *_agents(layout), *_connect(layout)]
    found += [Acl(role="operator", resource=TOPIC, name=layout.prefix, operations=READ, prefixed=True)]
    found += _topics("operator", layout, WRITE, "config", "audit", "requests.public")
    for domain in domains:
        found += _topics(f"service:{domain}", layout, WRITE, f"requests.{domain}")
        found += _topics(f"service:{domain}", layout, READ, "config", "jobs", "state", "rejected", "results")
    return found


def commands(found: Sequence[Acl], *, principal: str) -> Iterator[str]:
    """Lines for kafka-acls.sh without its path and address; `{role}` in the principal is replaced."""
    for acl in found:
        who = principal.replace("{role}", acl.role.replace(":", "-"))
        operations = " ".join(f"--operation {each}" for each in acl.operations)
        what = "--cluster" if acl.resource == CLUSTER else f"{_OPTIONS[acl.resource]} {acl.name}"
        pattern = " --resource-pattern-type prefixed" if acl.prefixed else ""
        yield f"--add --allow-principal {who} {operations} {what}{pattern}"


def _topics(role: str, layout: Layout, operations: tuple[str, ...], *names: str) -> list[Acl]:
    return [Acl(role=role, resource=TOPIC, name=layout.prefix + name, operations=operations) for name in names]


def _scheduler(layout: Layout) -> list[Acl]:
    written = ("jobs", "state", "leases", "signals", "results", "executions", "dead-letters", "rejected", "alerts")
    return [
        Acl(role="scheduler", resource=TOPIC, name=layout.prefix, operations=(*READ, "DescribeConfigs"), prefixed=True),
        *_topics("scheduler", layout, WRITE, *written, "audit", "owners", "worker-inbox"),
        Acl(role="scheduler", resource=TOPIC, name=f"{layout.prefix}runs.", operations=WRITE, prefixed=True),
        Acl(role="scheduler", resource=TOPIC, name=f"{layout.prefix}worker-events.", operations=WRITE, prefixed=True),
        Acl(role="scheduler", resource=TRANSACTION, name=f"{layout.prefix}slot-", operations=WRITE, prefixed=True),
        Acl(role="scheduler", resource=GROUP, name=f"{layout.prefix}schedulers", operations=READ),
        Acl(role="scheduler", resource=CLUSTER, name="kafka-cluster", operations=("IdempotentWrite",)),
    ]


def _worker(layout: Layout, lanes: Sequence[str]) -> list[Acl]:
    return [
        *_topics("worker", layout, READ, "worker-inbox", "config", *(f"runs.{lane}" for lane in lanes)),
        *_topics("worker", layout, WRITE, *(f"worker-events.{lane}" for lane in lanes)),
        Acl(
            role="worker",
            resource=GROUP,
            name=f"{layout.prefix}workers",
            operations=(*READ, "DescribeConfigs", "AlterConfigs"),
            prefixed=True,
        ),
    ]


def _api(layout: Layout, lanes: Sequence[str]) -> list[Acl]:
    read = ("config", "owners", "executions", "jobs", "state", "leases", "results", "dead-letters", "audit", "alerts")
    return [
        *_topics("api", layout, READ, *read, "agents-state", "agents-told"),
        *_topics("api", layout, WRITE, "requests.api", "config", "audit"),
        *_topics("api", layout, WRITE, *(f"worker-events.{lane}" for lane in lanes)),
    ]


def _agents(layout: Layout) -> list[Acl]:
    tables = ("agents-state", "agents-told")
    return [
        *_topics("agents", layout, READ, "config", "jobs", "executions", "alerts", *tables),
        *_topics("agents", layout, WRITE, "alerts", *tables),
        Acl(role="agents", resource=GROUP, name=f"{layout.prefix}agents", operations=READ),
        Acl(role="agents", resource=CLUSTER, name="kafka-cluster", operations=("IdempotentWrite",)),
    ]


def _connect(layout: Layout) -> list[Acl]:
    return [
        *_topics("connect", layout, READ, "executions"),
        *_topics("connect", layout, WRITE, "sink-errors"),
        Acl(role="connect", resource=GROUP, name="connect-noontide-", operations=READ, prefixed=True),
    ]
