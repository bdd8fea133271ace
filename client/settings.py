"""What may be set of a consumer beside who it is (RocketMQ: DefaultMQPushConsumer's fields)."""

from collections.abc import Mapping
from enum import StrEnum
from types import NoneType

import msgspec

from congreve.client.checks import check_number, check_seconds, check_type
from congreve.client.errors import InvalidSettingError
from congreve.client.processqueue import INT64_MAX, FlowLimits

PULL_COUNT_MAX = 65_536
CONSUME_BATCH_MAX = 1024
CONCURRENCY_MAX = 1000
UNLIMITED = -1
DEFAULT_ATTEMPTS = 16
_REPEATED = ("commit_s", "rebalance_s", "lock_s", "consume_timeout_s")


class ConsumeFrom(StrEnum):
    """Where a group begins in a queue that it has never read (RocketMQ: ConsumeFromWhere)."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(StrEnum):
    """Whether members share a topic's queues, or each reads all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. Raises InvalidSettingError for what is out of its range."""

    pull_count: int = 32
    """Messages that a pull asks for. Brokers give 32 at most unless they are set to give more
    (maxTransferCountOnMessageInMemory)."""
    pull_wait_s: float = 15.0
    """How long a broker holds a pull that finds nothing."""
    pull_interval_s: float = 0.0
    pause_after_error_s: float = 1.0
    limits: FlowLimits = FlowLimits()
    concurrency: int = 20
    """Listeners at work at a time: tasks for ``async def``, threads for ``def``."""
    consume_batch: int = 1
    """Messages that a batch listener gets at most."""
    max_reconsume_times: int = UNLIMITED
    """Attempts before a message goes to the dead letters; -1: 16, of an orderly one without end."""
    consume_timeout_s: float = 900.0
    """A message whose listener works for longer is sent back."""
    suspend_s: float = 1.0
    """Pause of an orderly queue whose listener asked for one."""
    retry_local_s: float = 5.0
    """Before a message that could not be sent back comes again."""
    commit_s: float = 5.0
    rebalance_s: float = 20.0
    lock_s: float = 20.0
    """How often the locks of an orderly member are renewed; brokers forget them after a minute."""
    stop_wait_s: float = 10.0
    """How long stop() waits for listeners at work."""
    carry_subscription: bool = False
    """Whether each pull says what is wanted, beside the heartbeats."""

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
        """How often a message is tried at most."""
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
    """What a member of a group is made from. Raises InvalidSettingError."""
    check_type("model", model, MessageModel)
    check_type("consume_from", consume_from, ConsumeFrom)
    if consume_timestamp_ms is not None:
        check_number("consume_timestamp_ms", consume_timestamp_ms, 0, INT64_MAX)
    if not callable(strategy):
        raise InvalidSettingError(f"strategy is {strategy!r}: take one of client.rebalance")
    check_type("settings", settings, ConsumerSettings, NoneType)
    check_type("topics", topics, Mapping)
