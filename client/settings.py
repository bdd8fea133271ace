"""Settings of consumers (RocketMQ: fields of DefaultMQPushConsumer)."""

from collections.abc import Mapping
from enum import StrEnum
from types import NoneType

import msgspec

from congreve.client.checks import check_number, check_seconds, check_type
from congreve.client.errors import InvalidSettingError
from congreve.client.pull.process_queue import INT64_MAX, FlowLimits

PULL_COUNT_MAX = 65_536
CONSUME_BATCH_MAX = 1024
CONCURRENCY_MAX = 1000
UNLIMITED = -1
DEFAULT_ATTEMPTS = 16
_REPEATED = ("commit_s", "rebalance_s", "lock_s", "consume_timeout_s")


class ConsumeFrom(StrEnum):
    """Where a group starts in a queue that it has never read (RocketMQ: ConsumeFromWhere)."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(StrEnum):
    """Whether members share a topic's queues, or each member reads all of them (RocketMQ:
    MessageModel)."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a push or lite pull consumer; times are in seconds.

    Raises InvalidSettingError when a value is out of range. (RocketMQ: DefaultMQPushConsumer.)
    """

    pull_count: int = 32
    """Maximum number of messages in a pull. Brokers return at most 32 unless their
    maxTransferCountOnMessageInMemory is higher."""
    pull_wait_s: float = 15.0
    """How long a broker holds a pull that finds no message."""
    pull_interval_s: float = 0.0
    pause_after_error_s: float = 1.0
    limits: FlowLimits = FlowLimits()
    concurrency: int = 20
    """Maximum number of concurrent listener calls: tasks for ``async def``, threads for ``def``."""
    consume_batch: int = 1
    """Maximum number of messages in a call of a batch listener."""
    max_reconsume_times: int = UNLIMITED
    """Attempts before a message goes to the dead letter queue; -1 means 16, and no limit for an
    orderly listener."""
    consume_timeout_s: float = 900.0
    """When a listener works on a message for longer, the message is sent back to the broker."""
    suspend_s: float = 1.0
    """How long an orderly queue pauses when its listener asks for it."""
    retry_local_s: float = 5.0
    """Delay before this member retries a message itself that it could not send back."""
    commit_s: float = 5.0
    rebalance_s: float = 20.0
    lock_s: float = 20.0
    """Interval at which an orderly member renews its queue locks; brokers drop them after a
    minute."""
    stop_wait_s: float = 10.0
    """How long stop() waits for running listeners."""
    carry_subscription: bool = False
    """Whether each pull carries the subscription, in addition to the heartbeats."""

    def __post_init__(self) -> None:
        check_number("pull_count", self.pull_count, 1, PULL_COUNT_MAX)
        check_number("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        check_number("consume_batch", self.consume_batch, 1, CONSUME_BATCH_MAX)
        check_number("max_reconsume_times", self.max_reconsume_times, UNLIMITED)
        check_type("limits", self.limits, FlowLimits)
        for name in self.__struct_fields__:
            if name.endswith("_s"):
                check_seconds(name, getattr(self, name), above_zero=name in _REPEATED)

    def attempts(self, *, orderly: bool) -> int:
        """Maximum number of attempts for a message."""
        if self.max_reconsume_times != UNLIMITED:
            return self.max_reconsume_times
        return 2**31 - 1 if orderly else DEFAULT_ATTEMPTS


def check_member(
    model: object,
    consume_from: object,
    consume_timestamp_ms: object,
    strategy: object,
    settings: object,
    topics: object,
) -> None:
    """Check the arguments of a group member. Raises InvalidSettingError when one is invalid."""
    check_type("model", model, MessageModel)
    check_type("consume_from", consume_from, ConsumeFrom)
    if consume_timestamp_ms is not None:
        check_number("consume_timestamp_ms", consume_timestamp_ms, 0, INT64_MAX)
    if not callable(strategy):
        raise InvalidSettingError(f"strategy is {strategy!r}: use one of client.rebalance")
    check_type("settings", settings, ConsumerSettings, NoneType)
    check_type("topics", topics, Mapping)
