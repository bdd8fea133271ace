"""Settings of a store, under RocketMQ's names (MessageStoreConfig, a part of broker.conf)."""

import os
from functools import lru_cache
from typing import Annotated

import msgspec

from congreve.base import settings
from congreve.base.settings import INT_MAX, Change, Range, Show
from congreve.engine.errors import StoreConfigError
from congreve.engine.file_sizes import ENTRY_SIZE, index_file_size
from congreve.records.message.parked import ParkingRule

IO_BACKENDS = ("auto", "mmap", "pool", "uring")

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MIN_SEGMENT = 1024  # smaller files cannot hold a record and its blank
_MAX_DELAY_MS = INT_MAX * 1_000
_MAX_TRANSFER = 16 << 20  # bytes; clients accept no larger answers


@lru_cache(maxsize=16)
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Delays in ms, level 1 first (RocketMQ: ScheduleMessageService.parseDelayLevel)."""
    delays = []
    for word in text.split():
        number, unit = word[:-1], word[-1:]
        if unit not in _UNIT_MS or not number.isdecimal():
            raise StoreConfigError(
                f"messageDelayLevel has {word!r}: write a number and one of s, m, h, d, as in '10s'"
            )
        # int() would raise its own error for thousands of digits.
        delay = int(number) * _UNIT_MS[unit] if len(number) < 20 else _MAX_DELAY_MS + 1
        if delay > _MAX_DELAY_MS:
            raise StoreConfigError(
                f"messageDelayLevel has {word[:30]!r}: a delay is at most {_MAX_DELAY_MS // 1_000}s"
            )
        delays.append(delay)
    return tuple(delays)


def parse_hours(text: str) -> frozenset[int]:
    """Hours of the local day (RocketMQ: deleteWhen, `04` or `04;16`)."""
    words = [word.strip() for word in text.split(";") if word.strip()]
    if any(not word.isdecimal() or int(word) > 23 for word in words):
        raise StoreConfigError(f"deleteWhen is {text!r}: write hours 00 to 23 separated by ';'")
    return frozenset(map(int, words))


class StoreConfig(msgspec.Struct, kw_only=True, rename="camel"):
    """Settings of one store; times in ms and sizes in bytes unless their comment says otherwise.

    `msgspec.convert(properties, StoreConfig, strict=False)` reads RocketMQ's own keys.
    Raises StoreConfigError for a value that cannot work.
    """

    root_dir: Annotated[str, Show.NEVER] = msgspec.field(
        name="storePathRootDir",
        default_factory=lambda: os.path.join(os.path.expanduser("~"), "store"),
    )
    # ROOT/commitlog
    commit_log_dir: Annotated[str, Show.NEVER] = msgspec.field(
        name="storePathCommitLog", default=""
    )

    mapped_file_size_commit_log: Annotated[int, Range(_MIN_SEGMENT, INT_MAX)] = 1 << 30
    mapped_file_size_consume_queue: Annotated[int, Range(1, INT_MAX)] = 300_000 * ENTRY_SIZE
    # Congreve: queues mapped for writing at the same time; 0: derived from vm.max_map_count.
    max_mapped_queues: Annotated[int, Range(0, INT_MAX)] = 0
    max_hash_slot_num: Annotated[int, Range(1, INT_MAX)] = 5_000_000
    max_index_num: Annotated[int, Range(1, INT_MAX)] = 20_000_000
    message_index_enable: bool = True
    max_message_size: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 4 << 20
    message_delay_level: Annotated[str, Change.AFTER_RESTART] = (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )
    flush_delay_offset_interval: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 10_000
    # As in RocketMQ 5, with a longer limit: 3 days are its default.
    timer_wheel_enable: Annotated[bool, Change.NOW] = True
    timer_max_delay_sec: Annotated[int, Range(0, INT_MAX), Change.NOW] = 40 * 86_400
    timer_roll_window_slot: Annotated[int, Range(1, INT_MAX)] = 2 * 86_400  # seconds

    io_backend: str = "auto"
    # The reference's default is ASYNC_FLUSH: a power cut may lose acknowledged messages.
    flush_disk_type: Annotated[str, Change.AFTER_RESTART] = "SYNC_FLUSH"
    sync_flush_timeout: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 5_000
    flush_interval_commit_log: Annotated[int, Range(1, INT_MAX)] = 500
    flush_commit_log_timed: Annotated[bool, Change.AFTER_RESTART] = True
    flush_commit_log_least_pages: Annotated[int, Range(0, INT_MAX), Change.NOW] = 4
    flush_commit_log_thorough_interval: Annotated[int, Range(0, INT_MAX), Change.NOW] = 10_000
    flush_interval_consume_queue: Annotated[int, Range(1, INT_MAX)] = 1_000
    flush_consume_queue_thorough_interval: Annotated[int, Range(0, INT_MAX)] = 60_000
    transient_store_pool_enable: bool = False  # the same as ioBackend=pool
    # Buffers of a segment's size, allocated on demand.
    transient_store_pool_size: Annotated[int, Range(1, INT_MAX)] = 5
    # Congreve: false lets the system swap buffers where this process may not lock them.
    transient_store_pool_locked: bool = True
    commit_interval_commit_log: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 200
    commit_commit_log_least_pages: Annotated[int, Range(0, INT_MAX), Change.AFTER_RESTART] = 4
    commit_commit_log_thorough_interval: Annotated[int, Range(0, INT_MAX), Change.AFTER_RESTART] = (
        200
    )

    check_crc_on_recover: Annotated[bool, Change.AFTER_RESTART] = msgspec.field(
        name="checkCRCOnRecover", default=True
    )
    file_reserved_time: Annotated[int, Range(0, 1_000_000), Change.NOW] = 72  # hours
    # Congreve: hours for segments whose messages are all in tables (lakeRetention).
    lake_reserved_time: Annotated[int, Range(0, 1_000_000), Change.NOW] = 72
    delete_when: Annotated[str, Change.NOW] = "04"  # hours of the local day
    clean_resource_interval: Annotated[int, Range(1, INT_MAX)] = 10_000
    delete_commit_log_files_interval: Annotated[int, Range(0, INT_MAX)] = 100
    # Percent; values outside 10 to 95 count as the nearest of these.
    disk_max_used_space_ratio: Annotated[int, Range(0, INT_MAX), Change.NOW] = 75
    clean_file_forcibly_enable: Annotated[bool, Change.NOW] = True

    max_transfer_bytes_on_message_in_memory: Annotated[
        int, Range(1, _MAX_TRANSFER), Change.AFTER_RESTART
    ] = 256 << 10
    max_transfer_count_on_message_in_memory: Annotated[
        int, Range(1, 65_536), Change.AFTER_RESTART
    ] = 32
    max_transfer_bytes_on_message_in_disk: Annotated[
        int, Range(1, _MAX_TRANSFER), Change.AFTER_RESTART
    ] = 64 << 10
    max_transfer_count_on_message_in_disk: Annotated[
        int, Range(1, 65_536), Change.AFTER_RESTART
    ] = 8
    # Percent of the machine's memory.
    access_message_in_memory_max_ratio: Annotated[int, Range(0, 100), Change.AFTER_RESTART] = 40
    max_msgs_num_batch: Annotated[int, Range(1, 10_000), Change.NOW] = 64
    default_query_max_num: Annotated[int, Range(1, 10_000), Change.NOW] = 32

    def __post_init__(self) -> None:
        try:
            settings.check(self)
        except ValueError as error:
            raise StoreConfigError(str(error)) from error
        if not self.commit_log_dir:
            self.commit_log_dir = os.path.join(self.root_dir, "commitlog")
        if self.flush_disk_type not in {"SYNC_FLUSH", "ASYNC_FLUSH"}:
            raise StoreConfigError(
                f"flushDiskType is {self.flush_disk_type!r}: use SYNC_FLUSH or ASYNC_FLUSH"
            )
        self._choose_backend()
        entries = -(-self.mapped_file_size_consume_queue // ENTRY_SIZE)
        self.mapped_file_size_consume_queue = entries * ENTRY_SIZE
        self.disk_max_used_space_ratio = min(max(self.disk_max_used_space_ratio, 10), 95)
        self._check_index_size()
        parse_delay_levels(self.message_delay_level)
        parse_hours(self.delete_when)

    def _check_index_size(self) -> None:
        index_file = index_file_size(self.max_hash_slot_num, self.max_index_num)
        if index_file > INT_MAX:
            raise StoreConfigError(
                f"maxHashSlotNum={self.max_hash_slot_num} and maxIndexNum={self.max_index_num} "
                f"make index files of {index_file} bytes: use at most {INT_MAX}"
            )

    def _choose_backend(self) -> None:
        if self.io_backend not in IO_BACKENDS:
            raise StoreConfigError(
                f"ioBackend is {self.io_backend!r}: use one of {', '.join(IO_BACKENDS)}"
            )
        if self.transient_store_pool_enable:
            if self.io_backend not in {"auto", "pool"}:
                raise StoreConfigError(
                    f"transientStorePoolEnable=true contradicts ioBackend={self.io_backend}: "
                    "remove one of them"
                )
            self.io_backend = "pool"

    @property
    def sync_flush(self) -> bool:
        """Whether a send is answered only when its message is durable (SYNC_FLUSH)."""
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delay of each level in milliseconds, level 1 first."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def parking(self) -> ParkingRule:
        """The current rule for the queue entries of parked messages."""
        return ParkingRule(self.delay_levels_ms, self.timer_roll_ms)

    @property
    def timer_roll_ms(self) -> int:
        """Milliseconds after which a timed message is written again, before its segment expires.

        At least a minute: with fileReservedTime=0 the store would write it again and again.
        """
        reserved_ms = self.file_reserved_time * 3_600_000
        return max(min(self.timer_roll_window_slot * 1000, reserved_ms // 2), 60_000)

    @property
    def other_commit_log_dir(self) -> str:
        """storePathCommitLog if it is not the default, else an empty text."""
        default = os.path.join(self.root_dir, "commitlog")
        return "" if self.commit_log_dir == default else self.commit_log_dir

    @property
    def consume_queue_dir(self) -> str:
        """The folder of the consume queues."""
        return os.path.join(self.root_dir, "consumequeue")

    @property
    def index_dir(self) -> str:
        """The folder of the key index."""
        return os.path.join(self.root_dir, "index")

    @property
    def config_dir(self) -> str:
        """The folder of the state files: topics, groups, consumer offsets."""
        return os.path.join(self.root_dir, "config")

    @property
    def own_dir(self) -> str:
        """The folder of the files that RocketMQ does not have: state, timer runs."""
        return os.path.join(self.root_dir, "congreve")

    @property
    def removed_queues_dir(self) -> str:
        """The folder of removed topics' queues, until their files are unlinked."""
        return os.path.join(self.own_dir, "removed")

    @property
    def checkpoint_path(self) -> str:
        """The file with the store times up to which log, queues and index are flushed."""
        return os.path.join(self.root_dir, "checkpoint")

    @property
    def abort_path(self) -> str:
        """The file that exists while the store is open (RocketMQ: abort)."""
        return os.path.join(self.root_dir, "abort")

    @property
    def lock_path(self) -> str:
        """The file that an open store locks."""
        return os.path.join(self.root_dir, "lock")
