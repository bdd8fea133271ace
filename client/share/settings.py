"""Settings of share consumers (RocketMQ 5: the pop fields of DefaultMQPushConsumer)."""

import msgspec

from congreve.client.checks import check_number, check_seconds
from congreve.client.errors import InvalidSettingError
from congreve.client.settings import CONCURRENCY_MAX, CONSUME_BATCH_MAX, DEFAULT_ATTEMPTS, UNLIMITED

POP_MAX = 32
"""Maximum number of messages in a pop; a broker refuses more (RocketMQ 5:
MaxUnAckPopNum)."""
IN_FLIGHT_MAX = 1_000_000
INVISIBLE_MAX_S = 12 * 3600.0
POP_DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class ShareSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a share consumer; times are in seconds.

    Raises InvalidSettingError when a value is out of range. (RocketMQ 5: DefaultMQPushConsumer.)
    """

    invisible_s: float = 60.0
    """How long a message is this consumer's; then the broker hands it out again."""
    wait_s: float = 15.0
    """How long a broker holds a request that finds no message."""
    max_in_flight: int = 1000
    """Maximum number of messages that are received and not settled yet."""
    concurrency: int = 20
    """Maximum number of concurrent listener calls: tasks for ``async def``, threads for ``def``."""
    consume_batch: int = 1
    """Maximum number of messages in a call of a batch listener."""
    retry_delays_s: tuple[float, ...] = POP_DELAYS_S
    """Delays before a message comes again that a listener failed on: the first at its first
    attempt, the last at all attempts that are left."""
    max_reconsume_times: int = UNLIMITED
    """Attempts of a listener before a message goes to the dead letter queue; -1 means 16."""
    consume_timeout_s: float = 900.0
    """How long a message remains this consumer's while its listener works on it."""
    pause_after_error_s: float = 1.0
    rebalance_s: float = 20.0
    """Interval at which the consumer looks for new brokers and queues."""
    stop_wait_s: float = 10.0
    """How long stop() waits for running listeners."""

    def __post_init__(self) -> None:
        check_seconds("invisible_s", self.invisible_s)
        if self.invisible_s > INVISIBLE_MAX_S:
            raise InvalidSettingError(
                f"invisible_s is {self.invisible_s!r}: at most {INVISIBLE_MAX_S:.0f} is expected"
            )
        check_number("max_in_flight", self.max_in_flight, 1, IN_FLIGHT_MAX)
        check_number("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        check_number("consume_batch", self.consume_batch, 1, CONSUME_BATCH_MAX)
        check_number("max_reconsume_times", self.max_reconsume_times, UNLIMITED)
        if not self.retry_delays_s:
            raise InvalidSettingError("retry_delays_s is empty: at least one delay is expected")
        for delay_s in self.retry_delays_s:
            check_seconds("retry_delays_s", delay_s, above_zero=False)
        for name in ("consume_timeout_s", "rebalance_s"):
            check_seconds(name, getattr(self, name))
        for name in ("wait_s", "pause_after_error_s", "stop_wait_s"):
            check_seconds(name, getattr(self, name), above_zero=False)

    @property
    def attempts(self) -> int:
        """Maximum number of attempts of a listener on a message."""
        given = self.max_reconsume_times
        return DEFAULT_ATTEMPTS if given == UNLIMITED else given

    def delay_s(self, level: int, times: int) -> float:
        """The delay after a failure: that of `level`, or with level 0 that of the attempt, of
        which there were `times` before (RocketMQ 5: changePopInvisibleTime)."""
        delays = self.retry_delays_s
        return delays[min(level or times, len(delays) - 1)]
