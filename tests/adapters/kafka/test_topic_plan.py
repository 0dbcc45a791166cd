"""Comparing files and cluster without a broker: replicas, numbers, and what keeps a process from starting."""

from __future__ import annotations

import pytest

from noontide.adapters.kafka.topic_plan import (
    Found,
    FoundTopic,
    Meta,
    Plan,
    compare,
    effective_config,
    layout_problems,
    same_value,
    wanted_topics,
)
from noontide.records.topics import FORMAT_VERSION, Layout, load_catalogue

LAYOUT = Layout(partitions=6, slots=2)
META = Meta(partitions=6, slots=2)
WANTED = wanted_topics(LAYOUT, domains=["api"], lanes=["default"])


def everything(*, replication: int = 3, **changed: FoundTopic) -> dict[str, FoundTopic]:
    """All topics as the files want them, some replaced (short name, `_` for `-`)."""
    made = {
        topic.name: FoundTopic(
            partitions=topic.partitions,
            replication=replication,
            config=effective_config(topic.file, replication=replication),
        )
        for topic in WANTED
    }
    return made | {LAYOUT.prefix + name.replace("_", "-"): topic for name, topic in changed.items()}


def plan(found: Found, replication: int | None = None) -> Plan:
    return compare(LAYOUT, WANTED, found=found, replication=replication)


@pytest.mark.parametrize("replication, insync", [(1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_one_broker_may_always_be_lost(replication: int, insync: str) -> None:
    config = effective_config(load_catalogue()["jobs"], replication=replication)
    assert config["min.insync.replicas"] == insync
    inbox = effective_config(load_catalogue()["worker-inbox"], replication=replication)
    assert inbox["min.insync.replicas"] == "1"


@pytest.mark.parametrize("brokers, replication", [(1, 1), (2, 2), (3, 3), (7, 3)])
def test_replicas_are_three_or_as_many_as_there_are_brokers(brokers: int, replication: int) -> None:
    found = Found(brokers=brokers, topics={}, meta=None)
    assert plan(found).replication == replication


@pytest.mark.parametrize("replication, fine", [(0, False), (1, True), (3, True), (4, False)])
def test_replicas_must_fit_the_brokers(replication: int, fine: bool) -> None:
    found = Found(brokers=3, topics={}, meta=None)
    assert (plan(found, replication).problems == ()) is fine


@pytest.mark.parametrize("replication", [1, 2, 3])
def test_nothing_to_do_with_as_many_replicas_as_the_topics_have(replication: int) -> None:
    result = plan(Found(brokers=3, topics=everything(replication=replication), meta=META))
    assert (result.pending, result.problems, result.unknown) == (False, (), ())


def test_in_sync_replicas_follow_the_replicas_a_topic_has() -> None:
    jobs = everything()[LAYOUT.name("jobs")]
    grown = FoundTopic(partitions=6, replication=3, config={**jobs.config, "min.insync.replicas": "1"})
    (change,) = plan(Found(brokers=3, topics=everything(jobs=grown), meta=META)).changes
    assert (change.topic, change.setting, change.old, change.new) == ("noontide.jobs", "min.insync.replicas", "1", "2")


def test_a_cluster_that_was_not_asked_for_settings_has_no_changes() -> None:
    bare = {name: FoundTopic(partitions=t.partitions, replication=1, config={}) for name, t in everything().items()}
    assert not plan(Found(brokers=1, topics=bare, meta=META)).pending


@pytest.mark.parametrize("partitions", [5, 7])
def test_any_other_partition_count_is_a_problem(partitions: int) -> None:
    other = FoundTopic(partitions=partitions, replication=1, config={})
    found = Found(brokers=1, topics=everything(jobs=other), meta=META)
    assert len(plan(found).problems) == 1
    assert f"noontide.jobs has {partitions} partitions, not 6" in plan(found).problems[0]
    assert len(layout_problems(LAYOUT, found)) == 1


@pytest.mark.parametrize(
    "meta, problem",
    [
        (Meta(partitions=7, slots=2), "partitions 7, the settings say 6"),
        (Meta(partitions=6, slots=3), "slots 3, the settings say 2"),
        (Meta(partitions=6, slots=2, version=FORMAT_VERSION + 1), f"version 2, the settings say {FORMAT_VERSION}"),
    ],
)
def test_another_meta_is_a_problem(meta: Meta, problem: str) -> None:
    found = Found(brokers=1, topics=everything(), meta=meta)
    assert plan(found).problems == layout_problems(LAYOUT, found) == (f"config/meta says {problem}",)


def test_a_process_may_start_on_what_was_applied_and_not_before() -> None:
    assert layout_problems(LAYOUT, Found(brokers=1, topics=everything(), meta=META)) == ()
    assert "has no meta record" in layout_problems(LAYOUT, Found(brokers=1, topics=everything(), meta=None))[0]
    assert "jobs does not exist" in layout_problems(LAYOUT, Found(brokers=1, topics={}, meta=META))[0]


def test_slot_topics_of_another_size_keep_a_process_from_starting() -> None:
    signals = FoundTopic(partitions=9, replication=1, config={})
    problems = layout_problems(LAYOUT, Found(brokers=1, topics=everything(signals=signals), meta=META))
    assert [problem.split(":")[0] for problem in problems] == [
        "topic noontide.signals has 9 partitions, not 4 (slots*slots)"
    ]


def test_every_template_is_filled_once_per_name() -> None:
    names = [topic.name for topic in wanted_topics(LAYOUT, domains=["a", "b", "a"], lanes=["x"])]
    assert len(names) == len(set(names)) == len(list(load_catalogue())) + 1
    assert {"noontide.requests.a", "noontide.requests.b", "noontide.runs.x", "noontide.worker-events.x"} <= set(names)


@pytest.mark.parametrize(
    "old, new, same",
    [("0.20", "0.2", True), ("1", "1", True), ("1", "2", False), ("compact", "delete", False), (None, "1", False)],
)
def test_settings_are_compared_as_text_or_number(old: str | None, new: str, same: bool) -> None:
    assert same_value(old, new) is same
