"""Layout: names and the arithmetic of partitions and slots. Catalogue: reading, and refusing what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from noontide.records.topic_file import TopicError, parse_topic_file
from noontide.records.topics import Layout, load_catalogue

layouts = st.integers(1, 130).flatmap(
    lambda partitions: st.builds(Layout, partitions=st.just(partitions), slots=st.integers(1, partitions))
)


def minimal() -> dict[str, object]:
    return {
        "name": "things",
        "purpose": "For tests.",
        "key": {"what": "id", "why": "order"},
        "written_by": ["a"],
        "read_by": ["b"],
        "partitions": "slots*k",
        "config": {"cleanup.policy": {"value": "delete", "why": "because"}},
        "value": {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        "examples": [],
        "sinks": [],
    }


def test_names() -> None:
    layout = Layout()
    assert layout.name("jobs") == "noontide.jobs"
    assert layout.name("requests", domain="api") == "noontide.requests.api"
    assert Layout(prefix="test-7.").name("runs", lane="bulk") == "test-7.runs.bulk"
    assert Layout(prefix="").name("worker-events", lane="a_b-1") == "worker-events.a_b-1"


@pytest.mark.parametrize(
    "topic, parameters, message",
    [
        ("job", {}, "no topic 'job'"),
        ("requests", {}, r"takes \(domain\), not \(\)"),
        ("jobs", {"lane": "x"}, r"takes \(\), not \(lane\)"),
        ("runs", {"lane": "a.b"}, "lane 'a.b'"),
        ("runs", {"lane": ""}, "lane ''"),
        ("runs", {"lane": "x" * 64}, "1 to 63"),
    ],
)
def test_names_refused(topic: str, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(TopicError, match=message):
        Layout().name(topic, **parameters)


def test_short_names_are_the_inverse() -> None:
    layout = Layout(prefix="p.")
    assert layout.short(layout.name("requests", domain="api")) == "requests.api"
    with pytest.raises(TopicError, match="does not begin with"):
        layout.short("q.jobs")


def test_catalogue_knows_whose_template_a_name_fits() -> None:
    catalogue = load_catalogue()
    requests, runs = catalogue.match("requests.orders"), catalogue.match("runs.gpu_1")
    assert requests is not None
    assert requests.topic == "requests"
    assert runs is not None
    assert runs.topic == "runs"
    assert catalogue.match("requests") is None
    assert catalogue.match("requests.a.b") is None
    assert catalogue.match("jobs2") is None


@pytest.mark.parametrize("key", ["nightly-report", "reminder-4711", "a:b@c~d", "x" * 200])
def test_partition_of_is_javas_default(key: str) -> None:
    expected = (aiokafka_murmur2(key.encode()) & 0x7FFFFFFF) % 64
    assert Layout().partition_of(key) == expected == Layout().partition_of(key.encode())


@given(layouts)
def test_slots_are_blocks_that_cover_every_partition_once(layout: Layout) -> None:
    blocks = [layout.partitions_of(slot) for slot in range(layout.slots)]
    assert [partition for block in blocks for partition in block] == list(range(layout.partitions))
    sizes = {len(block) for block in blocks}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert all(layout.slot_of(partition) == slot for slot, block in enumerate(blocks) for partition in block)


def test_default_blocks_are_eight_of_eight() -> None:
    layout = Layout()
    assert layout.partitions_of(0) == range(8)
    assert layout.partitions_of(7) == range(56, 64)
    assert (layout.slot_of(7), layout.slot_of(8), layout.slot_of(63)) == (0, 1, 7)


def test_uneven_blocks() -> None:
    layout = Layout(partitions=10, slots=4)
    assert [list(layout.partitions_of(slot)) for slot in range(4)] == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]


@given(layouts)
def test_signals_partitions_are_one_per_pair(layout: Layout) -> None:
    slots = range(layout.slots)
    partitions = [layout.signals_partition(receiver, sender) for receiver in slots for sender in slots]
    assert sorted(partitions) == list(range(layout.topic_partitions("signals")))
    assert list(layout.signals_partitions_of(layout.slots - 1)) == partitions[-layout.slots :]


@pytest.mark.parametrize("k, expected", [(1, [2]), (3, [2, 6, 10])])
def test_runs_partitions_stay_when_k_grows(k: int, expected: list[int]) -> None:
    layout = Layout(slots=4, runs_per_slot=k)
    assert list(layout.runs_partitions_of(2)) == expected
    written = sorted(partition for slot in range(4) for partition in layout.runs_partitions_of(slot))
    assert written == list(range(layout.topic_partitions("runs")))


def test_partition_counts() -> None:
    layout = Layout(partitions=12, slots=3, runs_per_slot=2)
    counts = {file.topic: layout.topic_partitions(file.topic) for file in load_catalogue()}
    assert counts == {
        **dict.fromkeys(("requests", "jobs"), 12),
        **dict.fromkeys(
            ("state", "leases", "worker-events", "results", "executions", "dead-letters", "audit", "agents-state"), 3
        ),
        **dict.fromkeys(("rejected", "alerts", "agents-told"), 12),
        **dict.fromkeys(("config", "owners", "sink-errors"), 1),
        "signals": 9,
        "runs": 6,
        "worker-inbox": 16,
    }


@pytest.mark.parametrize(
    "bad",
    [{"slots": 0}, {"slots": 65}, {"partitions": 0}, {"runs_per_slot": 0}, {"prefix": "a b"}, {"prefix": "x" * 101}],
)
def test_layouts_refused(bad: dict[str, object]) -> None:
    with pytest.raises(TopicError):
        Layout(**bad)  # type: ignore[arg-type]


def test_layout_limits() -> None:
    assert Layout(partitions=1, slots=1).partitions_of(0) == range(1)
    assert Layout(slots=64).slot_of(63) == 63


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Layout().slot_of(-1),
        lambda: Layout().slot_of(64),
        lambda: Layout().partitions_of(8),
        lambda: Layout().signals_partition(0, 8),
        lambda: Layout().runs_partitions_of(-1),
    ],
)
def test_no_such_slot_or_partition(ask: Callable[[], object]) -> None:
    with pytest.raises(TopicError, match=r"is not in 0 \.\. "):
        ask()


def test_a_minimal_file() -> None:
    file = parse_topic_file("things", minimal())
    assert (file.topic, file.template, file.parameters, file.partitions) == ("things", "things", (), "slots*k")
    assert file.config[0].value == "delete"
    assert file.tombstone is None


@pytest.mark.parametrize(
    "change, message",
    [
        ({"name": "other"}, "things.name"),
        ({"purpose": " "}, "things.purpose"),
        ({"partitions": "slots+1"}, "things.partitions"),
        ({"config": {"retention.ms": {"value": 1}}}, "things.config.retention.ms: why missing"),
        ({"config": {"retention.ms": {"value": [1], "why": "x"}}}, "things.config.retention.ms.value"),
        ({"surprise": 1}, "unknown field surprise"),
        ({"written_by": []}, "things.written_by"),
        ({"value": {}}, r"things.value: \$schema missing"),
        ({"by_key": {"a": "b"}}, "no definition 'b'"),
        ({"examples": [{"about": "x", "key": "k"}]}, r"things.examples\[0\]: value missing"),
        ({"sinks": "none"}, "things.sinks"),
        ({"headers": {"etag": {"description": "x"}}}, "things.headers.etag: since missing"),
    ],
)
def test_files_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(TopicError, match=message):
        parse_topic_file("things", minimal() | change)


def test_missing_field_is_named() -> None:
    content = minimal()
    del content["sinks"]
    with pytest.raises(TopicError, match="things: sinks missing"):
        parse_topic_file("things", content)


def test_booleans_are_written_as_brokers_do() -> None:
    change = {"config": {"unclean.leader.election.enable": {"value": False, "why": "x"}}}
    assert parse_topic_file("things", minimal() | change).config[0].value == "false"
