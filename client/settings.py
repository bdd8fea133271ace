"""What may be set of a consumer beside who it is (RocketMQ: DefaultMQPushConsumer's fields)."""

from enum import StrEnum

import msgspec

from congreve.client.errors import InvalidSettingError
from congreve.client.processqueue import FlowLimits

PULL_COUNT_MAX = 65_536
CONSUME_BATCH_MAX = 1024
UNLIMITED = -1
DEFAULT_ATTEMPTS = 16


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
        whole = {
            "pull_count": (1, PULL_COUNT_MAX),
            "concurrency": (1, 1000),
            "consume_batch": (1, CONSUME_BATCH_MAX),
            "max_reconsume_times": (-1, 2**31 - 1),
        }
        for name, (low, high) in whole.items():
            if not low <= getattr(self, name) <= high:
                raise InvalidSettingError(f"{name} is {getattr(self, name)}: {low} to {high}")
        for name in self.__struct_fields__:
            if name.endswith("_s") and not 0 <= getattr(self, name) < float("inf"):
                raise InvalidSettingError(f"{name} is {getattr(self, name)}: 0 or more is needed")

    def attempts(self, *, orderly: bool) -> int:
        """How often a message is tried at most."""
        if self.max_reconsume_times != UNLIMITED:
            return self.max_reconsume_times
        return 2**31 - 1 if orderly else DEFAULT_ATTEMPTS
