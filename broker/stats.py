"""How much goes in and out (RocketMQ: StoreStatsService, BrokerStats, BrokerStatsManager).

What was put is read off the ends of the consume queues when a sample is taken, so that a send
counts nothing. What was pulled is counted per pull, not per message.
"""

from collections import deque
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import NamedTuple

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
        self._found = self._missed = self._transferred = 0
        self._counters: dict[tuple[str, str], int] = {}
        self._windows: dict[tuple[str, str], list[_Window]] = {}
        self._samples: deque[Totals] = deque(maxlen=max(AVERAGES_S) // SAMPLE_INTERVAL_S + 2)
        self._day: date | None = None
        self.put_today_morning = self.put_yesterday_morning = 0
        self.get_today_morning = self.get_yesterday_morning = 0

    def pulled(self, group: str, topic: str, messages: int, size: int) -> None:
        """A pull was answered with so many messages of so many bytes."""
        self._found += 1
        self._transferred += messages
        key = f"{topic}@{group}"
        for name, gained in ((GROUP_GET_NUMS, messages), (GROUP_GET_SIZE, size)):
            self._counters[name, key] = self._counters.get((name, key), 0) + gained

    def missed(self) -> None:
        """A pull found nothing."""
        self._missed += 1

    def totals(self) -> Totals:
        put = sum(queue.max for queue in self._queues())
        return Totals(self._clock.now(), put, self._found, self._missed, self._transferred)

    def sample(self) -> None:
        """Called every SAMPLE_INTERVAL_S: what rates and windows are made from."""
        by_topic: dict[str, int] = {}
        for queue in self._queues():
            by_topic[queue.topic] = by_topic.get(queue.topic, 0) + queue.max
        now = self._clock.now()
        for topic, count in by_topic.items():
            self._counters[TOPIC_PUT_NUMS, topic] = count
        for key, counter in self._counters.items():
            windows = self._windows.get(key)
            if windows is None:
                self._windows[key] = [_Window(length, now, counter) for length in WINDOWS_MS]
            else:
                for window in windows:
                    window.roll(now, counter)
        totals = Totals(now, sum(by_topic.values()), self._found, self._missed, self._transferred)
        self._samples.append(totals)
        self._new_day(totals)

    def forget_topic(self, topic: str) -> None:
        """A deleted topic takes its counters along."""
        for key in [k for k in self._counters if k[1] == topic or k[1].startswith(topic + "@")]:
            del self._counters[key]
            self._windows.pop(key, None)

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
        self._day = today
        self.put_yesterday_morning = self.put_today_morning
        self.put_today_morning = totals.put
        self.get_yesterday_morning = self.get_today_morning
        self.get_today_morning = totals.transferred
