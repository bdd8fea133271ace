"""Settings of a store, under RocketMQ's names (MessageStoreConfig, a part of broker.conf)."""

import os
from functools import lru_cache

import msgspec

from congreve.engine.errors import StoreConfigError

IO_BACKENDS = ("auto", "mmap", "pool", "uring")

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CQ_ENTRY = 20
_MIN_SEGMENT = 1024  # smaller files could not hold a record beside its blank
_INT_MAX = (1 << 31) - 1  # the reference's sizes are ints
# Sizes, and intervals of loops that would turn without a rest.
_POSITIVE = frozenset(
    {"transient_store_pool_size", "mapped_file_size_consume_queue", "max_hash_slot_num"}
    | {"max_index_num", "flush_interval_commit_log", "commit_interval_commit_log"}
    | {"flush_interval_consume_queue", "sync_flush_timeout", "max_message_size"}
    | {"flush_delay_offset_interval", "clean_resource_interval"}
)
_NOT_NEGATIVE = frozenset({"file_reserved_time", "delete_commit_log_files_interval"})


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
        delays.append(int(number) * _UNIT_MS[unit])
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
    Raises StoreConfigError where a value cannot work.
    """

    root_dir: str = msgspec.field(
        name="storePathRootDir",
        default_factory=lambda: os.path.join(os.path.expanduser("~"), "store"),
    )
    commit_log_dir: str = msgspec.field(name="storePathCommitLog", default="")  # ROOT/commitlog

    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 300_000 * _CQ_ENTRY
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True
    max_message_size: int = 4 << 20
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flush_delay_offset_interval: int = 10_000
    # As in RocketMQ 5, with a longer limit: 3 days are its default.
    timer_wheel_enable: bool = True
    timer_max_delay_sec: int = 40 * 86_400
    timer_roll_window_slot: int = 2 * 86_400  # seconds

    io_backend: str = "auto"
    # The reference's default is ASYNC_FLUSH: an acknowledged message may be lost with the power.
    flush_disk_type: str = "SYNC_FLUSH"
    sync_flush_timeout: int = 5_000
    flush_interval_commit_log: int = 500
    flush_commit_log_timed: bool = True
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_thorough_interval: int = 60_000
    transient_store_pool_enable: bool = False  # ioBackend=pool says the same
    transient_store_pool_size: int = 5  # buffers of a segment's size, made as they are needed
    transient_store_pool_locked: bool = True  # ours: false lets buffers swap where mlock may not
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200

    check_crc_on_recover: bool = msgspec.field(name="checkCRCOnRecover", default=True)
    file_reserved_time: int = 72  # hours
    delete_when: str = "04"  # hours of the local day
    clean_resource_interval: int = 10_000
    delete_commit_log_files_interval: int = 100
    disk_max_used_space_ratio: int = 75  # percent
    clean_file_forcibly_enable: bool = True

    max_transfer_bytes_on_message_in_memory: int = 256 << 10
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 << 10
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40  # percent of the machine's memory
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32

    def __post_init__(self) -> None:
        if not self.commit_log_dir:
            self.commit_log_dir = os.path.join(self.root_dir, "commitlog")
        if self.flush_disk_type not in {"SYNC_FLUSH", "ASYNC_FLUSH"}:
            raise StoreConfigError(
                f"flushDiskType is {self.flush_disk_type!r}: SYNC_FLUSH or ASYNC_FLUSH are known"
            )
        self._choose_backend()
        if not _MIN_SEGMENT <= self.mapped_file_size_commit_log <= _INT_MAX:
            raise StoreConfigError(
                f"mappedFileSizeCommitLog is {self.mapped_file_size_commit_log}: "
                f"{_MIN_SEGMENT} to {_INT_MAX} bytes are possible"
            )
        self._check_ints()
        entries = -(-self.mapped_file_size_consume_queue // _CQ_ENTRY)
        self.mapped_file_size_consume_queue = entries * _CQ_ENTRY
        self.disk_max_used_space_ratio = min(max(self.disk_max_used_space_ratio, 10), 95)
        parse_delay_levels(self.message_delay_level)
        parse_hours(self.delete_when)

    def _check_ints(self) -> None:
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if field.name in _POSITIVE and not 0 < value <= _INT_MAX:
                raise StoreConfigError(
                    f"{field.encode_name} is {value}: it must be positive, {_INT_MAX} at most"
                )
            if field.name in _NOT_NEGATIVE and value < 0:
                raise StoreConfigError(f"{field.encode_name} is {value}: it cannot be negative")
        index_file = 40 + 4 * self.max_hash_slot_num + 20 * self.max_index_num
        if index_file > _INT_MAX:
            raise StoreConfigError(
                f"maxHashSlotNum={self.max_hash_slot_num} and maxIndexNum={self.max_index_num} "
                f"make index files of {index_file} bytes: {_INT_MAX} at most are possible"
            )

    def _choose_backend(self) -> None:
        if self.io_backend not in IO_BACKENDS:
            raise StoreConfigError(
                f"ioBackend is {self.io_backend!r}: {', '.join(IO_BACKENDS)} are known"
            )
        if self.transient_store_pool_enable:
            if self.io_backend not in {"auto", "pool"}:
                raise StoreConfigError(
                    f"transientStorePoolEnable=true and ioBackend={self.io_backend} exclude each "
                    "other: leave out one of them"
                )
            self.io_backend = "pool"

    @property
    def sync_flush(self) -> bool:
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        return parse_delay_levels(self.message_delay_level)

    @property
    def timer_roll_ms(self) -> int:
        """A timed message that is older than this is written anew: its segment expires."""
        return min(self.timer_roll_window_slot * 1000, self.file_reserved_time * 3_600_000 // 2)

    @property
    def consume_queue_dir(self) -> str:
        return os.path.join(self.root_dir, "consumequeue")

    @property
    def index_dir(self) -> str:
        return os.path.join(self.root_dir, "index")

    @property
    def config_dir(self) -> str:
        return os.path.join(self.root_dir, "config")

    @property
    def own_dir(self) -> str:
        """What the reference does not know: our state, prepared segments."""
        return os.path.join(self.root_dir, "congreve")

    @property
    def checkpoint_path(self) -> str:
        return os.path.join(self.root_dir, "checkpoint")

    @property
    def abort_path(self) -> str:
        return os.path.join(self.root_dir, "abort")

    @property
    def lock_path(self) -> str:
        return os.path.join(self.root_dir, "lock")
