"""Settings of a store, under RocketMQ's names (MessageStoreConfig, a part of broker.conf)."""

import os
from functools import lru_cache
from typing import Annotated

import msgspec

from congreve.base import settings
from congreve.base.settings import INT_MAX, Change, Range, Show
from congreve.engine.errors import StoreConfigError
from congreve.engine.file_sizes import ENTRY_SIZE, index_file_size
from congreve.io_backends.backends import BACKENDS
from congreve.records.message.parked import ParkingRule

IO_BACKENDS = ("auto", *BACKENDS)

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
    """Folder of the store. By default `~/store`."""
    commit_log_dir: Annotated[str, Show.NEVER] = msgspec.field(
        name="storePathCommitLog", default=""
    )
    """Folder of the commit log; empty: `commitlog` below the store's folder."""

    mapped_file_size_commit_log: Annotated[int, Range(_MIN_SEGMENT, INT_MAX)] = 1 << 30
    """Bytes of a commit log segment."""
    mapped_file_size_consume_queue: Annotated[int, Range(1, INT_MAX)] = 300_000 * ENTRY_SIZE
    """Bytes of a consume queue file, rounded up to a multiple of 20."""
    max_mapped_queues: Annotated[int, Range(0, INT_MAX)] = 0
    """Queues that are mapped for writing at the same time; 0 chooses by vm.max_map_count. Congreve
    only."""
    max_hash_slot_num: Annotated[int, Range(1, INT_MAX)] = 5_000_000
    """Hash slots of an index file."""
    max_index_num: Annotated[int, Range(1, INT_MAX)] = 20_000_000
    """Entries of an index file."""
    message_index_enable: bool = True
    """Keep an index of message keys."""
    max_message_size: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 4 << 20
    """Most bytes of a body, or of a batch."""
    message_delay_level: Annotated[str, Change.AFTER_RESTART] = (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )
    """Delays by level, level 1 first."""
    flush_delay_offset_interval: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 10_000
    """Time in ms between two writes of delayOffset.json."""
    timer_wheel_enable: Annotated[bool, Change.NOW] = True
    """Accept messages with a time of their own."""
    timer_max_delay_sec: Annotated[int, Range(0, INT_MAX), Change.NOW] = 40 * 86_400
    """How far ahead in seconds such a time may be."""
    timer_roll_window_slot: Annotated[int, Range(1, INT_MAX)] = 2 * 86_400
    """A timed message that waits longer than this (seconds), or than half of fileReservedTime, is
    written to the log again."""

    io_backend: str = "auto"
    """[How the log is written](tuning.md#how-the-log-is-written); auto takes what `congreve tune`
    chose. Congreve only."""
    flush_disk_type: Annotated[str, Change.AFTER_RESTART] = "SYNC_FLUSH"
    """SYNC_FLUSH answers a send when it is on disk, ASYNC_FLUSH when it is in memory. RocketMQ's
    default is ASYNC_FLUSH."""
    sync_flush_timeout: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 5_000
    """After this time in ms a SYNC_FLUSH send is answered with FLUSH_DISK_TIMEOUT."""
    flush_interval_commit_log: Annotated[int, Range(1, INT_MAX)] = 500
    """Time in ms between two flushes with ASYNC_FLUSH."""
    flush_commit_log_timed: Annotated[bool, Change.AFTER_RESTART] = True
    """false: a flush also begins when messages arrive."""
    flush_commit_log_least_pages: Annotated[int, Range(0, INT_MAX), Change.NOW] = 4
    """Least number of 4 KiB pages for a flush."""
    flush_commit_log_thorough_interval: Annotated[int, Range(0, INT_MAX), Change.NOW] = 10_000
    """After this time in ms fewer pages are flushed, too."""
    flush_interval_consume_queue: Annotated[int, Range(1, INT_MAX)] = 1_000
    """Time in ms between two looks whether queues are due to be flushed."""
    flush_consume_queue_thorough_interval: Annotated[int, Range(0, INT_MAX)] = 60_000
    """Time in ms between two flushes of all queues, with a checkpoint."""
    transient_store_pool_enable: bool = False
    """The same as ioBackend=pool."""
    transient_store_pool_size: Annotated[int, Range(1, INT_MAX)] = 5
    """Most buffers of the pool, each as large as a segment."""
    transient_store_pool_locked: bool = True
    """false allows the pool's buffers to be swapped out. Congreve only."""
    commit_interval_commit_log: Annotated[int, Range(1, INT_MAX), Change.AFTER_RESTART] = 200
    """Time in ms between two writes from the pool to the file."""
    commit_commit_log_least_pages: Annotated[int, Range(0, INT_MAX), Change.AFTER_RESTART] = 4
    """Least number of 4 KiB pages for such a write."""
    commit_commit_log_thorough_interval: Annotated[int, Range(0, INT_MAX), Change.AFTER_RESTART] = (
        200
    )
    """After this time in ms fewer pages are written, too."""

    check_crc_on_recover: Annotated[bool, Change.AFTER_RESTART] = msgspec.field(
        name="checkCRCOnRecover", default=True
    )
    """Check the CRC of each body that recovery reads."""
    scrub_bytes_per_second: Annotated[int, Range(0, INT_MAX), Change.NOW] = 8 << 20
    """How fast the log is read in the background to find [damage](reliability.md#damaged-disks),
    in bytes a second; 0: it is not. Congreve only."""
    scrub_interval: Annotated[int, Range(1, INT_MAX), Change.NOW] = 86_400_000
    """Time in ms from the beginning of one such pass over the whole log to that of the next.
    Congreve only."""
    file_reserved_time: Annotated[int, Range(0, 1_000_000), Change.NOW] = 72
    """Age in hours at which a segment expires."""
    lake_reserved_time: Annotated[int, Range(0, 1_000_000), Change.NOW] = 72
    """Hours after which a segment may be deleted if tables have all of its messages
    (lakeRetention); fileReservedTime counts if it is shorter. Congreve only."""
    delete_when: Annotated[str, Change.NOW] = "04"
    """Hours of the local day at which expired segments are deleted, with `;` between them."""
    clean_resource_interval: Annotated[int, Range(1, INT_MAX)] = 10_000
    """Time in ms between two looks for expired segments."""
    delete_commit_log_files_interval: Annotated[int, Range(0, INT_MAX)] = 100
    """Pause in ms between two deletions."""
    disk_max_used_space_ratio: Annotated[int, Range(0, INT_MAX), Change.NOW] = 75
    """Use of the disk in percent from which segments are deleted at any hour; 10 to 95."""
    clean_file_forcibly_enable: Annotated[bool, Change.NOW] = True
    """Delete unexpired segments, too, when the disk is nearly full."""

    max_transfer_bytes_on_message_in_memory: Annotated[
        int, Range(1, _MAX_TRANSFER), Change.AFTER_RESTART
    ] = 256 << 10
    """Most bytes in one pull's answer while the messages are in memory."""
    max_transfer_count_on_message_in_memory: Annotated[
        int, Range(1, 65_536), Change.AFTER_RESTART
    ] = 32
    """Most messages in one pull's answer while they are in memory."""
    max_transfer_bytes_on_message_in_disk: Annotated[
        int, Range(1, _MAX_TRANSFER), Change.AFTER_RESTART
    ] = 64 << 10
    """The same for messages that are farther behind than accessMessageInMemoryMaxRatio."""
    max_transfer_count_on_message_in_disk: Annotated[
        int, Range(1, 65_536), Change.AFTER_RESTART
    ] = 8
    """The same for messages that are farther behind than accessMessageInMemoryMaxRatio."""
    access_message_in_memory_max_ratio: Annotated[int, Range(0, 100), Change.AFTER_RESTART] = 40
    """Percent of the machine's memory: what is farther behind the log's end counts as on disk."""
    max_msgs_num_batch: Annotated[int, Range(1, 10_000), Change.NOW] = 64
    """Most messages that a query by key finds."""
    default_query_max_num: Annotated[int, Range(1, 10_000), Change.NOW] = 32
    """Most messages that a query by unique key finds."""

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
