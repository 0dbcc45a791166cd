"""The catalogue of topics: what topics/*.yaml says, their names, and the arithmetic of partitions and slots.

The YAML files are the source. This module reads them; the broker is set up from them (adapters.kafka.topics) and the
reference is written from them (apps.docs_topics).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from noontide.core.partitioner import partition_for
from noontide.records.topic_file import TopicError, TopicFile, parse_topic_file

FORMAT_VERSION = 1  # of the records; kept in `config` under `meta`
DEFAULT_DOMAINS = ("api", "public")
DEFAULT_LANES = ("express", "default", "bulk")

_PARAMETER_VALUE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{0,100}")


def is_parameter(value: str) -> bool:
    """Whether a name can stand for `<domain>` or `<lane>` in the name of a topic."""
    return _PARAMETER_VALUE.fullmatch(value) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All topic files, by short name, in alphabetical order."""

    files: Mapping[str, TopicFile]

    def __getitem__(self, topic: str) -> TopicFile:
        try:
            return self.files[topic]
        except KeyError:
            raise TopicError(f"no topic {topic!r}; known: {', '.join(self.files)}") from None

    def __iter__(self) -> Iterator[TopicFile]:
        return iter(self.files.values())

    def match(self, short_name: str) -> TopicFile | None:
        """The file whose template a name without prefix fits, such as `requests.orders`; None for a stranger."""
        for file in self:
            pattern = re.escape(file.template)
            for parameter in file.parameters:
                pattern = pattern.replace(re.escape(f"<{parameter}>"), _PARAMETER_VALUE.pattern)
            if re.fullmatch(pattern, short_name):
                return file
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the topics of one installation are named and cut: the same for every process, fixed at creation.

    prefix: before every topic name.
    partitions: of `jobs` and `requests.*`.
    slots: blocks of consecutive partitions with one owner each, 1 .. partitions.
    runs_per_slot: partitions of `runs.<lane>` per slot, the `k` of the topic files; may grow.
    former_slots: numbers of slots it had before; topics that others read keep as many partitions (`history`).
    Raises TopicError for a layout that cannot be.
    """

    prefix: str = "noontide."
    partitions: int = 64
    slots: int = 8
    runs_per_slot: int = 1
    former_slots: tuple[int, ...] = ()
    _factors: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= self.partitions:
            raise TopicError(f"slots must lie in 1 .. {self.partitions} (the partitions), not {self.slots}")
        if self.runs_per_slot < 1:
            raise TopicError(f"runs_per_slot must be at least 1, not {self.runs_per_slot}")
        if not _TOPIC_NAME.fullmatch(self.prefix):
            raise TopicError(f"prefix {self.prefix!r}: only letters, digits, '.', '_' and '-', at most 100")
        history = max(self.slots, *self.former_slots, 0)
        factors = {"partitions": self.partitions, "slots": self.slots, "k": self.runs_per_slot, "history": history}
        object.__setattr__(self, "_factors", factors)

    def name(self, topic: str, /, **parameters: str) -> str:
        """Full name: name("requests", domain="api") -> "noontide.requests.api".

        Raises TopicError for an unknown topic, missing or unknown parameters, or a value outside [a-z0-9_-]{1,63}.
        """
        file = load_catalogue()[topic]
        if set(parameters) != set(file.parameters):
            raise TopicError(f"topic {topic!r} takes ({', '.join(file.parameters)}), not ({', '.join(parameters)})")
        name = file.template
        for parameter, value in parameters.items():
            if not _PARAMETER_VALUE.fullmatch(value):
                raise TopicError(f"{parameter} {value!r}: 1 to 63 of a-z, 0-9, '_' and '-', a letter or digit first")
            name = name.replace(f"<{parameter}>", value)
        return self.prefix + name

    def short(self, full_name: str) -> str:
        """The name without prefix, as records name topics. Raises TopicError for a topic outside the prefix."""
        if not full_name.startswith(self.prefix):
            raise TopicError(f"topic {full_name!r} does not begin with {self.prefix!r}")
        return full_name[len(self.prefix) :]

    def partition_of(self, key: str | bytes) -> int:
        """Partition of a job id (or limiter key) on `jobs` and `requests.*`, as Kafka's Java default computes it."""
        return partition_for(key, self.partitions)

    def slot_of(self, partition: int) -> int:
        """The slot that a partition belongs to. Raises TopicError when there is no such partition."""
        if not 0 <= partition < self.partitions:
            raise TopicError(f"partition {partition} is not in 0 .. {self.partitions - 1}")
        return ((partition + 1) * self.slots - 1) // self.partitions

    def partitions_of(self, slot: int) -> range:
        """The consecutive partitions of a slot; sizes differ by at most one where the counts do not divide."""
        self._check_slot(slot)
        return range(slot * self.partitions // self.slots, (slot + 1) * self.partitions // self.slots)

    def signals_partition(self, receiver: int, sender: int) -> int:
        """Partition of `signals` for messages from one slot to another (or to itself)."""
        self._check_slot(receiver)
        self._check_slot(sender)
        return receiver * self.slots + sender

    def signals_partitions_of(self, receiver: int) -> range:
        """The partitions of `signals` a slot reads, one per sender."""
        self._check_slot(receiver)
        return range(receiver * self.slots, (receiver + 1) * self.slots)

    def runs_partitions_of(self, slot: int) -> range:
        """The partitions of `runs.<lane>` a slot writes: slot, slot + S, ...; stays valid when k grows."""
        self._check_slot(slot)
        return range(slot, self.slots * self.runs_per_slot, self.slots)

    def topic_partitions(self, topic: str) -> int:
        """How many partitions a topic (short name) has. Raises TopicError for an unknown topic."""
        count = 1
        for factor in load_catalogue()[topic].partitions.split("*"):
            count *= int(factor) if factor.isdecimal() else self._factors[factor]
        return count

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.slots:
            raise TopicError(f"slot {slot} is not in 0 .. {self.slots - 1}")


@cache
def load_catalogue() -> Catalogue:
    """Read all topic files, once per process. Raises TopicError naming the file and field that is wrong."""
    entries = (entry for entry in topics_folder().iterdir() if entry.name.endswith(".yaml"))
    files = [
        parse_topic_file(entry.name.removesuffix(".yaml"), yaml.load(entry.read_text("utf-8"), Loader=_LOADER))
        for entry in sorted(entries, key=lambda entry: entry.name)
    ]
    return Catalogue(files={file.topic: file for file in files})


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def topics_folder() -> Traversable:
    """Where the topic files are: inside the installed package, or topics/ of a checkout."""
    packaged = resources.files("noontide").joinpath("_topics")
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[3] / "topics"
    if not checkout.is_dir():
        raise TopicError(f"no topic files: neither {packaged} nor {checkout} exists")
    return checkout
