"""How much goes in and out (RocketMQ: StoreStatsService, BrokerStats, BrokerStatsManager).

What was put is read off the ends of the consume queues when a sample is taken, so that a send
counts nothing. What was pulled is counted per pull, not per message.
"""

from collections import deque
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import NamedTuple

from congreve.broker.pulltickets import PullCounter
from congreve.engine.clock import Clock
from congreve.engine.consumequeue import ConsumeQueue
from congreve.remoting.bodies import BrokerStatsData, BrokerStatsItem

SAMPLE_INTERVAL_S = 10
AVERAGES_S = (10, 60, 600)
WINDOWS_MS = (60_000, 3_600_000, 86_400_000)

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"


class Totals(NamedTuple):
    """Counts since the store was made (put) or the broker started (the others)."""

    time_ms: int
    put: int  # messages
    found: int  # pulls that found something
    missed: int  # pulls that did not
    transferred: int  # messages in answers to pulls


class _Window:
    """What a counter gained in the last full window, or in the running one before that."""

    __slots__ = ("begin_ms", "begin_total", "length_ms", "seconds", "total")

    def __init__(self, length_ms: int, now_ms: int, counter: int) -> None:
        self.length_ms = length_ms
        self.begin_ms = now_ms
        self.begin_total = counter
        self.total = 0
        self.seconds = 0.0

    def roll(self, now_ms: int, counter: int) -> None:
        elapsed = now_ms - self.begin_ms
        complete = elapsed >= self.length_ms
        if complete or self.seconds * 1000 < self.length_ms:
            self.total = counter - self.begin_total
            self.seconds = elapsed / 1000
        if complete:
            self.begin_ms = now_ms
            self.begin_total = counter

    def item(self) -> BrokerStatsItem:
        tps = self.total / self.seconds if self.seconds else 0.0
        return BrokerStatsItem(sum=self.total, tps=tps, avgpt=0.0)


class BrokerStats:
    """Counters and rates; `queues` gives all consume queues of the store."""

    def __init__(self, clock: Clock, queues: Callable[[], Iterable[ConsumeQueue]]) -> None:
        self._clock = clock
        self._queues = queues
        self._missed = 0
        self._pulls: dict[tuple[str, str], PullCounter] = {}  # by topic and group
        self._forgotten_pulls = self._forgotten_messages = 0  # of deleted topics
        self._counters: dict[tuple[str, str], int] = {}
        self._windows: dict[tuple[str, str], list[_Window]] = {}
        self._samples: deque[Totals] = deque(maxlen=max(AVERAGES_S) // SAMPLE_INTERVAL_S + 2)
        self._day: date | None = None
        self.put_today_morning = self.put_yesterday_morning = 0
        self.get_today_morning = self.get_yesterday_morning = 0

    def pull_counter(self, group: str, topic: str) -> PullCounter:
        """Where pulls of `group` from `topic` are counted, for as long as the topic is there."""
        counter = self._pulls.get((topic, group))
        if counter is None:
            counter = self._pulls[topic, group] = PullCounter()
        return counter

    def missed(self) -> None:
        """A pull found nothing."""
        self._missed += 1

    def totals(self) -> Totals:
        return self._totals(sum(queue.max for queue in self._queues()))

    def sample(self) -> None:
        """What rates and windows are made from: called at the start, then each SAMPLE_INTERVAL_S.

        What a topic holds at the start was put before; a counter that appears later began at 0.
        """
        by_topic: dict[str, int] = {}
        for queue in self._queues():
            by_topic[queue.topic] = by_topic.get(queue.topic, 0) + queue.max
        for topic, count in by_topic.items():
            self._counters[TOPIC_PUT_NUMS, topic] = count
        for (topic, group), counted in self._pulls.items():
            self._counters[GROUP_GET_NUMS, f"{topic}@{group}"] = counted.messages
            self._counters[GROUP_GET_SIZE, f"{topic}@{group}"] = counted.size
        totals = self._totals(sum(by_topic.values()))
        now = totals.time_ms
        for key, counter in self._counters.items():
            windows = self._windows.get(key)
            if windows is None:
                since, before = (self._samples[-1].time_ms, 0) if self._samples else (now, counter)
                windows = [_Window(length, since, before) for length in WINDOWS_MS]
                self._windows[key] = windows
            for window in windows:
                window.roll(now, counter)
        self._samples.append(totals)
        self._new_day(totals)

    def forget_topic(self, topic: str) -> None:
        """A deleted topic takes its counters along."""
        for key in [k for k in self._counters if k[1] == topic or k[1].startswith(topic + "@")]:
            del self._counters[key]
            self._windows.pop(key, None)
        for name in [name for name in self._pulls if name[0] == topic]:
            counter = self._pulls.pop(name)
            self._forgotten_pulls += counter.pulls
            self._forgotten_messages += counter.messages

    def averages(self, of: Callable[[Totals], int]) -> str:
        """Gains a second over AVERAGES_S as the reference prints them: three numbers in a text."""
        now = self.totals()
        rates = []
        for seconds in AVERAGES_S:
            since = self._sample_before(now.time_ms - seconds * 1000)
            elapsed = (now.time_ms - since.time_ms) / 1000 if since else 0.0
            rates.append((of(now) - of(since)) / elapsed if since and elapsed > 0 else 0.0)
        return " ".join(f"{rate}" for rate in rates)

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages a second that `group` pulled from `topic` in the last minute."""
        windows = self._windows.get((GROUP_GET_NUMS, f"{topic}@{group}"))
        return windows[0].item().tps if windows else 0.0

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """Body of code 315, None for a counter that does not exist."""
        windows = self._windows.get((name, key))
        if windows is None:
            return None
        minute, hour, day = (window.item() for window in windows)
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)

    def _totals(self, put: int) -> Totals:
        counters = self._pulls.values()
        found = self._forgotten_pulls + sum(counter.pulls for counter in counters)
        transferred = self._forgotten_messages + sum(counter.messages for counter in counters)
        return Totals(self._clock.now(), put, found, self._missed, transferred)

    def _sample_before(self, time_ms: int) -> Totals | None:
        """The newest sample that is old enough, else the oldest."""
        for sample in reversed(self._samples):
            if sample.time_ms <= time_ms:
                return sample
        return self._samples[0] if self._samples else None

    def _new_day(self, totals: Totals) -> None:
        today = datetime.fromtimestamp(totals.time_ms / 1000).astimezone().date()
        if today == self._day:
            return
        if self._day is None:  # the start: what was before counts for no day
            self.put_today_morning = totals.put
        self._day = today
        self.put_yesterday_morning = self.put_today_morning
        self.put_today_morning = totals.put
        self.get_yesterday_morning = self.get_today_morning
        self.get_today_morning = totals.transferred
