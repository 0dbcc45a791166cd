"""How the database of a slot is set up: small blocks, no write-ahead log, memory shared by all slots of the process.

Figures in the comments were measured on two cores with rows of 100 B and 1 KB.
"""

from __future__ import annotations

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    ReadOptions,
    WriteBufferManager,
    WriteOptions,
)

KIB = 1024
MIB = 1024 * KIB

# Each database may hold this share of the common write buffers, so that idle slots cannot use them all up and leave
# the busy one flushing after every batch.
_MEMTABLES_PER_BUDGET = 8
_MEMTABLE_BYTES_MIN = 64 * KIB

# Reading rebuilds the list of range deletes of a memtable after every write: 0.2 ms at 1,000 of them, 8 ms at 20,000.
MEMTABLE_RANGE_DELETES_MAX = 1_000

_OPEN_FILES_MAX = 64
_BACKGROUND_JOBS_MAX = 2


class SharedMemory:
    """Block cache and write buffers used by all indexes of one process.

    block_cache_bytes bounds cached blocks, including the indexes and filters of files. write_buffers_bytes is the size
    at which memtables are flushed; flushes under way may exceed it for a moment.
    """

    def __init__(self, *, block_cache_bytes: int, write_buffers_bytes: int) -> None:
        self.block_cache = Cache(block_cache_bytes)
        self.write_buffers = WriteBufferManager(write_buffers_bytes, allow_stall=False)
        self.memtable_bytes = max(write_buffers_bytes // _MEMTABLES_PER_BUDGET, _MEMTABLE_BYTES_MIN)

    @property
    def block_cache_used_bytes(self) -> int:
        """Bytes in the block cache now."""
        return self.block_cache.get_usage()

    @property
    def write_buffers_used_bytes(self) -> int:
        """Bytes in the memtables of all indexes now."""
        return self.write_buffers.get_usage()


def database_options(shared: SharedMemory) -> Options:
    """Options of one database, drawing on the shared memory."""
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_block_based_table_factory(_table_options(shared))
    options.set_write_buffer_manager(shared.write_buffers)
    options.set_write_buffer_size(shared.memtable_bytes)
    options.set_max_write_buffer_number(4)
    options.set_max_background_jobs(_BACKGROUND_JOBS_MAX)
    options.set_max_open_files(_OPEN_FILES_MAX)
    options.set_max_file_opening_threads(1)
    _keep_housekeeping_small(options)
    return options


def _table_options(shared: SharedMemory) -> BlockBasedOptions:
    table = BlockBasedOptions()
    table.set_block_size(4 * KIB)
    table.set_bloom_filter(10, block_based=False)
    table.set_format_version(5)
    table.set_block_cache(shared.block_cache)
    # Index and filter in parts: whole ones of large files are bigger than a shard of the cache, never stay in it and
    # are read again by every call (a scan of one row took 120 us instead of 12).
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(size=True)
    table.set_metadata_block_size(4 * KIB)
    table.set_pin_top_level_index_and_filter(v=True)
    table.set_cache_index_and_filter_blocks(v=True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(v=True)
    return table


def _keep_housekeeping_small(options: Options) -> None:
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_max_manifest_file_size(8 * MIB)
    options.set_manifest_preallocation_size(64 * KIB)


def without_wal() -> WriteOptions:
    """Writes reach disk with the next flush only: the log of the slot is the topic."""
    options = WriteOptions()
    # A property in the library; its type stub calls it a method.
    options.disable_wal = True  # type: ignore[method-assign,assignment]
    return options


def reading_below(stop: bytes) -> ReadOptions:
    """Iterators end at `stop` (exclusive) inside the database, without walking deleted rows behind it."""
    options = ReadOptions()
    options.set_iterate_upper_bound(stop)
    return options
