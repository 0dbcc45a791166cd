"""murmur2 against the vectors of Kafka's own tests and against aiokafka's port."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.partitioner import TOGETHER_MIN, murmur2, murmur2_all, partition_for

# org.apache.kafka.common.utils.UtilsTest.testMurmur2 (signed there)
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("data, signed", JAVA_VECTORS.items())
def test_java_vectors(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


@given(st.binary(max_size=400))
def test_equals_aiokafka(data: bytes) -> None:
    assert murmur2(data) == aiokafka_murmur2(data) & 0xFFFFFFFF


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 255, 256, 259, 260, 261, 1000])
def test_equals_aiokafka_around_the_fast_ways_limit(size: int) -> None:
    data = bytes((i * 37 + size) & 0xFF for i in range(size))
    assert murmur2(data) == aiokafka_murmur2(data) & 0xFFFFFFFF


@given(st.text(max_size=60), st.integers(1, 300))
def test_partition_is_in_range_and_text_is_utf8(key: str, partitions: int) -> None:
    partition = partition_for(key, partitions)
    assert 0 <= partition < partitions
    assert partition == partition_for(key.encode(), partitions)


def test_sign_bit_is_dropped_not_negated() -> None:
    # murmur2("21") is negative in Java: abs() would give another partition than the mask does
    assert partition_for("21", 64) == (-973932308 & 0x7FFFFFFF) % 64
    assert partition_for("21", 64) != abs(-973932308) % 64


@given(st.lists(st.integers(0, 9).flatmap(lambda size: st.binary(min_size=size, max_size=size)), max_size=200))
def test_all_at_once_as_one_by_one(keys: list[bytes]) -> None:
    assert murmur2_all(keys) == [murmur2(key) for key in keys]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 36, 37, 200, 1000])
@pytest.mark.parametrize("count", [TOGETHER_MIN - 1, TOGETHER_MIN, 100])
def test_keys_of_one_length_at_once(size: int, count: int) -> None:
    keys = [bytes((place * 37 + number * 101 + size) & 0xFF for place in range(size)) for number in range(count)]
    assert murmur2_all(keys) == [aiokafka_murmur2(key) & 0xFFFFFFFF for key in keys]
