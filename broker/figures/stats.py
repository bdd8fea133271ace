"""Statistics of sends and pulls (RocketMQ: StoreStatsService, BrokerStats, BrokerStatsManager).

A sample computes the number of sent messages from the ends of the consume queues, so a send updates
no counter. Pulled messages are counted once per pull.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from datetime import date, datetime
from typing import NamedTuple

from congreve.base.clock import Clock
from congreve.base.steps import at_once, portions
from congreve.broker.figures.pull_counter import PullCounter
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.remoting.messages.admin_bodies import BrokerStatsData, BrokerStatsItem

SAMPLE_INTERVAL_S = 10
AVERAGES_S = (10, 60, 600)
WINDOWS_S = (60, 3_600, 86_400)

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
GROUP_SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
"""By queue@topic@group: milliseconds in which a pull's messages are copied into its answer."""
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
"""By cluster, as BROKER_GET_NUMS."""
BROKER_GET_NUMS = "BROKER_GET_NUMS"


class Totals(NamedTuple):
    """Counts since the store was created (put) or the broker started (the others)."""

    at: float  # seconds of the monotonic clock
    put: int  # messages
    found: int  # pulls that found messages
    missed: int  # pulls that found none
    transferred: int  # messages in answers to pulls


class _Window:
    """The growth of a counter in the last full window, or so far in the first one."""

    __slots__ = ("begin_at", "begin_total", "length_s", "seconds", "total")

    def __init__(self, length_s: int, now: float, counter: int) -> None:
        self.length_s = length_s
        self.begin_at = now
        self.begin_total = counter
        self.total = 0
        self.seconds = 0.0

    def roll(self, now: float, counter: int) -> None:
        elapsed = now - self.begin_at
        complete = elapsed >= self.length_s
        if complete or self.seconds < self.length_s:
            self.total = max(counter - self.begin_total, 0)  # a topic may be deleted
            self.seconds = elapsed
        if complete:
            self.begin_at = now
            self.begin_total = counter

    @property
    def tps(self) -> float:
        return self.total / self.seconds if self.seconds else 0.0

    def item(self) -> BrokerStatsItem:
        return BrokerStatsItem(sum=self.total, tps=self.tps, avgpt=0.0)


class BrokerStats:
    """Counters and rates (RocketMQ: BrokerStatsManager); `queues` returns all consume queues."""

    def __init__(
        self,
        clock: Clock,
        queues: Callable[[], Iterable[ConsumeQueue]],
        monotonic: Callable[[], float] = time.monotonic,
        cluster: str = "",
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._monotonic = monotonic
        self._queues = queues
        self._missed = 0
        self._pulls: dict[tuple[str, str], PullCounter] = {}  # by topic and group
        self._sent_back: dict[tuple[str, str], int] = {}  # by topic and group
        self.dead_letters: dict[tuple[str, str], int] = {}
        """Messages put into a group's dead-letter topic since the start, by topic and group."""
        self._forgotten_pulls = self._forgotten_messages = 0  # of deleted topics
        self._counters: dict[tuple[str, str], int] = {}
        self._windows: dict[tuple[str, str], list[_Window]] = {}
        self._samples: deque[Totals] = deque(maxlen=max(AVERAGES_S) // SAMPLE_INTERVAL_S + 2)
        self._day: date | None = None
        self.put_today_morning = self.put_yesterday_morning = 0
        self.get_today_morning = self.get_yesterday_morning = 0

    def pull_counter(self, group: str, topic: str) -> PullCounter:
        """The counter of the pulls of `group` from `topic`, valid until the topic is deleted."""
        counter = self._pulls.get((topic, group))
        if counter is None:
            counter = self._pulls[topic, group] = PullCounter()
        return counter

    def missed(self) -> None:
        """Count a pull that found no message."""
        self._missed += 1

    def sent_back(self, group: str, topic: str, count: int = 1, *, is_dead: bool) -> None:
        """Count messages that members of `group` sent back, as dead letters or for a retry."""
        key = topic, group
        self._sent_back[key] = self._sent_back.get(key, 0) + count
        if is_dead:
            self.dead_letters[key] = self.dead_letters.get(key, 0) + count

    def total_steps(self) -> Generator[None, None, Totals]:
        """All current counts, in steps: there may be a hundred thousand queues."""
        put = 0
        for part in portions(self._queues()):
            put += sum([queue.max for queue in part])
            yield
        return self._totals(put)

    def sample(self) -> None:
        """Run sample_steps() at once: at the start no request waits."""
        at_once(self.sample_steps())

    def sample_steps(self) -> Generator[None, None, None]:
        """Take a sample for rates and windows, at the start and every SAMPLE_INTERVAL_S.

        Messages that a topic has at the start do not count; later counters begin at 0.
        """
        by_topic: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for queue in self._queues():
            by_topic[queue.topic] = by_topic.get(queue.topic, 0) + queue.max
            sizes[queue.topic] = sizes.get(queue.topic, 0) + queue.put_bytes
            yield
        for topic, count in by_topic.items():
            self._counters[TOPIC_PUT_NUMS, topic] = count
            self._counters[TOPIC_PUT_SIZE, topic] = sizes[topic]
            yield
        for (topic, group), counted in list(self._pulls.items()):
            self._counters[GROUP_GET_NUMS, f"{topic}@{group}"] = counted.messages
            self._counters[GROUP_GET_SIZE, f"{topic}@{group}"] = counted.size
            yield
        for (topic, group), number in list(self._sent_back.items()):
            self._counters[GROUP_SEND_BACK_NUMS, f"{topic}@{group}"] = number
            yield
        totals = self._totals(sum(by_topic.values()))
        self._counters[BROKER_PUT_NUMS, self._cluster] = totals.put
        self._counters[BROKER_GET_NUMS, self._cluster] = totals.transferred
        now = totals.at
        for key, counter in list(self._counters.items()):
            windows = self._windows.get(key)
            if windows is None:
                since, before = (self._samples[-1].at, 0) if self._samples else (now, counter)
                windows = [_Window(length, since, before) for length in WINDOWS_S]
                self._windows[key] = windows
            for window in windows:
                window.roll(now, counter)
            yield
        self._samples.append(totals)
        self._new_day(totals)

    def forget_topic_steps(self, topic: str) -> Generator[None, None, None]:
        """Drop the counters of a deleted topic."""
        for key in list(self._counters):
            if key[1] == topic or key[1].startswith(topic + "@"):
                self._counters.pop(key, None)
                self._windows.pop(key, None)
            yield
        for table in (self._sent_back, self.dead_letters):
            for name in [key for key in table if key[0] == topic]:
                del table[name]
        for name in list(self._pulls):
            counter = self._pulls.pop(name, None) if name[0] == topic else None
            if counter is not None:
                self._forgotten_pulls += counter.pulls
                self._forgotten_messages += counter.messages
            yield

    def averages(self, of: Callable[[Totals], int], now: Totals) -> str:
        """The growth per second over AVERAGES_S, as the reference prints it: three numbers."""
        rates = []
        for seconds in AVERAGES_S:
            since = self._sample_before(now.at - seconds)
            elapsed = now.at - since.at if since else 0.0
            rates.append((of(now) - of(since)) / elapsed if since and elapsed > 0 else 0.0)
        return " ".join(f"{rate}" for rate in rates)

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages a second that `group` pulled from `topic` in the last minute."""
        return self.minute_rate(GROUP_GET_NUMS, f"{topic}@{group}")

    def minute_rate(self, name: str, key: str) -> float:
        """A counter's growth a second in the last minute, 0.0 without such a counter."""
        windows = self._windows.get((name, key))
        return windows[0].tps if windows else 0.0

    def pulled(self, group: str, topic: str) -> tuple[int, int]:
        """Messages, and their bytes, that `group` got from `topic` since the start."""
        counter = self._pulls.get((topic, group))
        return (0, 0) if counter is None else (counter.messages, counter.size)

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """The body of code 315, None for a counter that does not exist."""
        if name == GROUP_GET_LATENCY:
            # Copying from memory takes less than a millisecond; waits for the disk are before it.
            is_known = (GROUP_GET_NUMS, key.partition("@")[2]) in self._windows
            none = BrokerStatsItem(sum=0, tps=0.0, avgpt=0.0)
            return BrokerStatsData(none, none, none) if is_known else None
        windows = self._windows.get((name, key))
        if windows is None:
            return None
        minute, hour, day = (window.item() for window in windows)
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def _totals(self, put: int) -> Totals:
        counters = self._pulls.values()
        found = self._forgotten_pulls + sum(counter.pulls for counter in counters)
        transferred = self._forgotten_messages + sum(counter.messages for counter in counters)
        return Totals(self._monotonic(), put, found, self._missed, transferred)

    def _sample_before(self, at: float) -> Totals | None:
        """The newest sample that is old enough, else the oldest."""
        for sample in reversed(self._samples):
            if sample.at <= at:
                return sample
        return self._samples[0] if self._samples else None

    def _new_day(self, totals: Totals) -> None:
        today = datetime.fromtimestamp(self._clock.now() / 1000).astimezone().date()
        if today == self._day:
            return
        if self._day is None:  # at the start: no day has the messages from before it
            self.put_today_morning = totals.put
        self._day = today
        self.put_yesterday_morning = self.put_today_morning
        self.put_today_morning = totals.put
        self.get_yesterday_morning = self.get_today_morning
        self.get_today_morning = totals.transferred
