"""What the topic files want, what a cluster has, and the difference: pure comparison, no broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from noontide.core.errors import NoontideError
from noontide.records.topic_file import TopicFile
from noontide.records.topics import FORMAT_VERSION, Layout, load_catalogue

REPLICATION_DEFAULT_MAX = 3


class LayoutMismatch(NoontideError):
    """Topics, `config/meta` and settings do not agree on partitions or slots; a process that sees this must not start.

    `problems`: one sentence each, naming topic, found and wanted.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What `config/meta` holds: fixed when the topics are made; only `noontide partitions reslot` changes the slots.

    former_slots: numbers of slots there were before. moving: how far an unfinished change is; None when all is well.
    """

    partitions: int
    slots: int
    version: int = FORMAT_VERSION
    former_slots: tuple[int, ...] = ()
    moving: str | None = None

    def layout(self, prefix: str) -> Layout:
        """The layout it describes."""
        return Layout(prefix=prefix, partitions=self.partitions, slots=self.slots, former_slots=self.former_slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic that should exist. `name` is the full name."""

    name: str
    file: TopicFile
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic of the cluster. `config` is empty when it was not asked for."""

    partitions: int
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a cluster has under the prefix, by full name; `meta` is None before the first apply."""

    brokers: int
    topics: Mapping[str, FoundTopic]
    meta: Meta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A setting of an existing topic that differs from its file."""

    topic: str
    setting: str
    old: str | None
    new: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `apply` would do.

    missing: topics to create, with `replication` replicas each.
    changes: settings to change.
    unknown: topics under the prefix that no file describes; left alone.
    problems: why nothing may be applied, one sentence each.
    meta: what `config/meta` must say; write_meta: it does not exist yet.
    """

    missing: tuple[WantedTopic, ...]
    changes: tuple[ConfigChange, ...]
    unknown: tuple[str, ...]
    problems: tuple[str, ...]
    replication: int
    meta: Meta
    write_meta: bool

    @property
    def pending(self) -> bool:
        """Whether there is something to apply."""
        return bool(self.missing or self.changes or self.write_meta)


def wanted_topics(layout: Layout, *, domains: Iterable[str], lanes: Iterable[str]) -> tuple[WantedTopic, ...]:
    """Every topic that should exist, one per domain or lane where the name is a template."""
    values = {"domain": tuple(dict.fromkeys(domains)), "lane": tuple(dict.fromkeys(lanes))}
    return tuple(
        WantedTopic(
            name=layout.name(file.topic, **dict(zip(file.parameters, combination, strict=True))),
            file=file,
            partitions=layout.topic_partitions(file.topic),
        )
        for file in load_catalogue()
        for combination in product(*(values[parameter] for parameter in file.parameters))
    )


def effective_config(file: TopicFile, *, replication: int) -> dict[str, str]:
    """The settings of a topic with so many replicas.

    min.insync.replicas is at most one less than them (at least 1), so that one broker may be lost or restarted.
    """
    config = {setting.name: setting.value for setting in file.config}
    insync = int(config["min.insync.replicas"])
    return config | {"min.insync.replicas": str(min(insync, max(1, replication - 1)))}


def compare(layout: Layout, wanted: Iterable[WantedTopic], *, found: Found, replication: int | None = None) -> Plan:
    """The difference between files and cluster.

    Topics of the cluster that fit a template (a domain or lane nobody named) are compared too. `replication` is for
    topics to be created; None = min(3, brokers).
    """
    known = {topic.name: topic for topic in (*wanted, *_instances(layout, found.topics))}
    existing = {name: (topic, found.topics[name]) for name, topic in known.items() if name in found.topics}
    meta = Meta(partitions=layout.partitions, slots=layout.slots, former_slots=layout.former_slots)
    copies = min(REPLICATION_DEFAULT_MAX, found.brokers) if replication is None else replication
    return Plan(
        missing=tuple(topic for name, topic in known.items() if name not in found.topics),
        changes=tuple(change for pair in existing.values() for change in _config_changes(*pair)),
        unknown=tuple(sorted(found.topics.keys() - known.keys())),
        problems=(
            *_meta_problems(meta, found.meta),
            *(problem for pair in existing.values() for problem in _partition_problems(*pair)),
            *_replication_problems(copies, brokers=found.brokers),
        ),
        replication=copies,
        meta=meta,
        write_meta=found.meta is None,
    )


def layout_problems(layout: Layout, found: Found) -> tuple[str, ...]:
    """What keeps a process with this layout from starting: no `jobs`, no meta, or other numbers; empty when it may."""
    jobs = layout.name("jobs")
    if jobs not in found.topics:
        return (f"topic {jobs} does not exist; `noontide topics apply` creates it",)
    if found.meta is None:
        return (f"{layout.name('config')} has no meta record; `noontide topics apply` writes it",)
    meta = Meta(partitions=layout.partitions, slots=layout.slots, former_slots=layout.former_slots)
    sized = (
        WantedTopic(name=layout.name(name), file=load_catalogue()[name], partitions=layout.topic_partitions(name))
        for name in ("jobs", "state", "leases", "signals")
    )
    return (
        *_meta_problems(meta, found.meta),
        *(
            problem
            for topic in sized
            if topic.name in found.topics
            for problem in _partition_problems(topic, found.topics[topic.name])
        ),
    )


def _instances(layout: Layout, names: Iterable[str]) -> Iterable[WantedTopic]:
    for name in names:
        if file := load_catalogue().match(layout.short(name)):
            yield WantedTopic(name=name, file=file, partitions=layout.topic_partitions(file.topic))


def _config_changes(wanted: WantedTopic, found: FoundTopic) -> Iterable[ConfigChange]:
    reasons = {setting.name: setting.why for setting in wanted.file.config}
    for name, new in effective_config(wanted.file, replication=found.replication).items():
        old = found.config.get(name)
        if found.config and not same_value(old, new):
            yield ConfigChange(topic=wanted.name, setting=name, old=old, new=new, why=reasons[name])


def same_value(old: str | None, new: str) -> bool:
    """Equal as text or as numbers: brokers may write 0.5 for 0.50."""
    if old is None or old == new:
        return old == new
    try:
        return float(old) == float(new)
    except ValueError:
        return False


def _partition_problems(wanted: WantedTopic, found: FoundTopic) -> Iterable[str]:
    if found.partitions != wanted.partitions:
        yield (
            f"topic {wanted.name} has {found.partitions} partitions, not {wanted.partitions} "
            f"({wanted.file.partitions}): the number is fixed when a topic is made"
        )


def _meta_problems(wanted: Meta, found: Meta | None) -> Iterable[str]:
    if found is not None and found.moving is not None:
        yield f"a change to {found.slots} slots is not finished; `noontide partitions reslot {found.slots}` goes on"
    for name in ("partitions", "slots", "version"):
        if found is not None and (has := getattr(found, name)) != (wants := getattr(wanted, name)):
            yield f"config/meta says {name} {has}, the settings say {wants}"


def _replication_problems(replication: int, *, brokers: int) -> Iterable[str]:
    if not 1 <= replication <= brokers:
        yield f"replication factor {replication} is not in 1 .. {brokers} (the brokers)"
