"""Which partition a key belongs to: murmur2, as Kafka's Java producer computes it.

Written for ids of about 36 bytes, about 1.5 us each: the words of a key are mixed in one multiplication, each in a
64-bit lane of one integer, because a Python loop over them costs more than the arithmetic. No cache is kept: ids
rarely come twice, and a cache of 10 million would be larger than the index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
TOGETHER_MIN = 24
"""Fewer keys of one length are hashed one by one."""
_WORDS_MAX = 64  # keys up to 259 bytes take the fast way; a job id has at most 200


def _lanes(value: int, count: int) -> int:
    return sum(value << 64 * lane for lane in range(count))


_WORDS = tuple(Struct(f"<{count}I") for count in range(_WORDS_MAX + 1))
_QUADS = tuple(Struct(f"<{count}Q") for count in range(_WORDS_MAX + 1))
_LOW_32 = tuple(_lanes(_MASK, count) for count in range(_WORDS_MAX + 1))
_LOW_8 = tuple(_lanes(0xFF, count) for count in range(_WORDS_MAX + 1))


def _mixed_words(data: bytes, count: int) -> tuple[int, ...]:
    """The first `count` little-endian words of `data`, each times m, xor its top byte, times m."""
    if count > _WORDS_MAX:
        words = Struct(f"<{count}I").unpack_from(data)
        products = (word * _MULTIPLIER & _MASK for word in words)
        return tuple((product ^ product >> 24) * _MULTIPLIER & _MASK for product in products)
    quads, low = _QUADS[count], _LOW_32[count]
    lanes = int.from_bytes(quads.pack(*_WORDS[count].unpack_from(data)), "little") * _MULTIPLIER & low
    lanes = (lanes ^ lanes >> 24 & _LOW_8[count]) * _MULTIPLIER & low
    return quads.unpack(lanes.to_bytes(count * 8, "little"))


@lru_cache(maxsize=256)  # a key is hashed several times in a row: where it was found, where it belongs, what it keys
def murmur2(data: bytes) -> int:
    """The 32-bit hash of `data`, unsigned.

    Java's is the same bits signed (org.apache.kafka.common.utils.Utils.murmur2).
    """
    size = len(data)
    hashed = _SEED ^ size
    for word in _mixed_words(data, size >> 2):
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if tail := size & 3:
        hashed = (hashed ^ int.from_bytes(data[-tail:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def murmur2_all(keys: Sequence[bytes]) -> list[int]:
    """`murmur2` of many keys; those of one length are mixed at once, which takes a quarter of the time."""
    by_size: defaultdict[int, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        by_size[len(key)].append(place)
    hashes = [0] * len(keys)
    for size, places in by_size.items():
        alike = [keys[place] for place in places]
        found = _hashed_at_once(alike, size) if len(alike) >= TOGETHER_MIN else map(murmur2, alike)
        for place, hashed in zip(places, found, strict=True):
            hashes[place] = hashed
    return hashes


def _hashed_at_once(keys: Sequence[bytes], size: int) -> tuple[int, ...]:
    """The hashes of keys of one length. Each step is one operation on all of them, a 64-bit lane for each."""
    count, mask = len(keys), _lanes_all(_MASK, len(keys))
    words, column = memoryview(b"".join(keys)), Struct(f"<{count}Q")

    def word(start: int, length: int) -> int:
        """The little-endian word of `length` bytes at `start`, of each key."""
        lanes = bytearray(8 * count)
        for place in range(length):
            lanes[place::8] = words[start + place :: size]
        return int.from_bytes(lanes, "little")

    hashed = _lanes_all(_SEED ^ size, count)
    for start in range(0, size - 3, 4):
        mixed = word(start, 4) * _MULTIPLIER & mask
        mixed = (mixed ^ mixed >> 24 & _lanes_all(0xFF, count)) * _MULTIPLIER & mask
        hashed = hashed * _MULTIPLIER & mask ^ mixed
    if tail := size & 3:
        hashed = (hashed ^ word(size - tail, tail)) * _MULTIPLIER & mask
    hashed = (hashed ^ hashed >> 13 & _lanes_all(_MASK >> 13, count)) * _MULTIPLIER & mask
    hashed ^= hashed >> 15 & _lanes_all(_MASK >> 15, count)
    return column.unpack(hashed.to_bytes(8 * count, "little"))


@lru_cache(maxsize=256)
def _lanes_all(value: int, count: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little") * count, "little")


def partition_for(key: str | bytes, partitions: int) -> int:
    """The partition, 0 .. partitions - 1, that Kafka's Java default partitioner gives a record with this key.

    A string is hashed as UTF-8. Source: BuiltInPartitioner.partitionForKey of the Java client.
    """
    data = key.encode() if isinstance(key, str) else key
    return (murmur2(data) & 0x7FFFFFFF) % partitions
