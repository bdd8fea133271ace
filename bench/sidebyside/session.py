"""The cases that are measured at one running broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import msgspec
from harness.drivers import java_driver
from harness.wire import Wire

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load, LoadResult
from congreve.io_backends.measure import raw_writes

from . import cases, process
from .brokers import Running
from .cases import Size
from .process import Memory
from .results import CaseResult, early, quantile, quantiles
from .storms import Call, storm
from .waiting import HeldPulls, idle_connections

PERCENTILES = {"50": 50.0, "95": 95.0, "99": 99.0, "999": 99.9, "Max": 100.0}
DISPATCH_LIMIT_S = 120.0
TIMES_MS = (300, 2_000)  # delay of the first message, and the distance of the others
PUSH_PAUSE_MS = 5
Tell = Callable[[str], None]


class WrongCountError(Exception):
    """The number of stored messages differs from the number of acknowledged ones."""


class Session:
    """Runs cases at one running broker; results are added to `results`."""

    def __init__(self, broker: Running, size: Size, number: int, tell: Tell) -> None:
        self.broker = broker
        self.size = size
        self.round = number
        self.results: list[CaseResult] = []
        self.stored = 0
        self._tell = tell

    def send(
        self, name: str, load: Load, *, topic: str | None = None, queues_exist: bool = False
    ) -> None:
        """Send for a given time to a new topic (default: `name`), and check that all acknowledged
        messages are stored."""
        load = cases.timed(load, self.size, topic or name)
        self.broker.create_topics(load)
        before = 0
        if queues_exist:
            first = cases.one_each(load, name)
            before = self._count(first, generator.run(self.broker.port, first))
        self._measure(name, load, before)

    def send_to_sink(self, name: str, load: Load) -> None:
        """Measure the same load at a server that only answers."""
        load = cases.timed(load, self.size, name)
        with generator.sink(load.size) as (port, pid):
            before = process.cpu_seconds(pid)
            found = generator.run(port, load)
            self._keep_load(name, load, found, process.cpu_seconds(pid) - before, cases.SINK)

    def create_topics(self, name: str) -> None:
        """Measure how long it takes to create many topics one after the other."""
        load = Load(topic=name, topics=self.size.storm_topics)
        begin = time.monotonic()
        self.broker.create_topics(load)
        seconds = time.monotonic() - begin
        self._keep(self._result(name, messages=load.topics, seconds=seconds))
        self._tell(f"{load.topics:,} topics in {seconds:.2f} s")

    def beside(self, name: str, call: Call) -> None:
        """Measure the probe, one send at a time, beside a storm of calls, and the calls.

        Beside the same calls to our broker, a probe of a server that only answers shows how long
        both wait for a core.
        """
        if self.broker.kind == "congreve":
            with storm(call):
                self.send_to_sink(name, cases.PROBE)
        with storm(call) as seconds:
            self.send(name, cases.PROBE)
        levels = {"50": median(seconds) * 1000, "99": quantile(seconds, 0.99) * 1000}
        result = self._result(
            cases.storm_of(name), messages=len(seconds), latency=levels, seconds=sum(seconds)
        )
        self._keep(result)
        self._tell(f"{len(seconds) / sum(seconds):,.0f} calls/s  p50 {levels['50']:.3f} ms")

    def pull(self, name: str, load: Load) -> None:
        """Fill a topic, then pull it repeatedly from the page cache."""
        filled = cases.fill(name, self.size.pull_messages, load.size, load.queues)
        self.broker.create_topics(filled)
        self._count(filled, generator.run(self.broker.port, filled))
        self._measure(name, cases.timed(load, self.size, name))

    def fill(self, name: str, messages: int, body: int) -> None:
        """Store messages that are not measured."""
        load = cases.fill(name, messages, body)
        self.broker.create_topics(load)
        self._count(load, generator.run(self.broker.port, load))

    def fill_cold(self, topic: str) -> Load:
        """Store messages, and restart the broker without them in memory; returns the load that
        reads all of them once."""
        messages = self.size.cold_bytes // cases.COLD_PULL.size
        filled = cases.fill(topic, messages, cases.COLD_PULL.size, cases.COLD_PULL.queues)
        self.broker.create_topics(filled)
        self._count(filled, generator.run(self.broker.port, filled))
        # The faster the sends, the sooner a message is older than 40 % of the memory; then a pull
        # gets eight messages of 64 KiB. Both brokers read the same here.
        self.broker.restart_cold(
            maxTransferCountOnMessageInDisk=str(cases.COLD_PULL.batch),
            maxTransferBytesOnMessageInDisk=str(256 << 10),
        )
        pulls = max(1, messages // cases.COLD_PULL.batch)
        return msgspec.structs.replace(cases.COLD_PULL, topic=topic, count=pulls)

    def heat(self) -> None:
        """Run load that is not measured: the JIT compiles, caches fill."""
        load = Load(topic="heat", warmup=0, duration=self.size.jit)
        pull = msgspec.structs.replace(cases.PULLS["pull-32x128B"], topic="heat", queues=4)
        self.broker.create_topics(load)
        self._count(load, generator.run(self.broker.port, load))
        for sql in (None, cases.FILTERED_PULL.sql):
            pull = msgspec.structs.replace(pull, warmup=0, duration=self.size.jit / 5, sql=sql)
            generator.run(self.broker.port, pull)

    def heat_by(self, load: Load) -> None:
        """Run this load without measuring it."""
        load = msgspec.structs.replace(load, topic="warm", warmup=0, duration=self.size.jit)
        self.broker.create_topics(load)
        self._count(load, generator.run(self.broker.port, load))

    def memory(self, name: str) -> None:
        """Record the broker's memory."""
        found = process.memory(self.broker.pid)
        self._keep(self._result(name, memory=found, messages=self.stored))
        self._tell(f"{found.anonymous:,.0f} MiB, and {found.file:,.0f} MiB of mapped files")

    def delay(self, name: str) -> None:
        """Measure how fast the broker delivers messages that came due while it was down."""
        load = cases.delayed(name, self.size)
        self.broker.create_topics(load)
        found = generator.run(self.broker.port, load)
        await_count(lambda: self.broker.parked(load.delay_level), found.all_messages)
        self.broker.restart(messageDelayLevel="1s")
        await_count(lambda: self.broker.stored(load), found.all_messages)
        begin, end = self.broker.stored_between(load)
        result = self._result(
            name,
            message_size=load.size,
            messages=found.all_messages,
            consume_rate=found.all_messages * 1000 / max(1, end - begin),
            errors=found.failures,
            seconds=(end - begin) / 1000,
        )
        self._keep(result)
        self._tell(f"{result.rate:12,.0f} msg/s  in {result.seconds:.2f} s")

    def pending(self, name: str) -> None:
        """Measure what the broker needs to hold messages with individual delivery times."""
        load = cases.timed_messages(name, self.size)
        self.broker.create_topics(load)
        found = generator.run(self.broker.port, load)
        await_count(self.broker.timed, found.all_messages)
        time.sleep(self.size.settle)
        held = process.memory(self.broker.pid)
        self._keep(
            self._result(
                name,
                message_size=load.size,
                messages=found.all_messages,
                publish_rate=found.rate,
                errors=found.failures,
                memory=held,
            )
        )
        self._tell(
            f"{found.rate:12,.0f} msg/s parked; {held.anonymous:,.0f} MiB,"
            f" and {held.file:,.0f} MiB of mapped files"
        )

    def punctual(self, name: str) -> None:
        """Measure how late such messages are delivered without other load."""
        load = Load(topic=name, queues=1)
        self.broker.create_topics(load)
        for number in range(self.size.punctual_messages):
            self.broker.send_timed(name, TIMES_MS[0] + number * 37 % TIMES_MS[1])
            time.sleep(PUSH_PAUSE_MS / 1000)
        await_count(lambda: self.broker.stored(load), self.size.punctual_messages)
        late = [float(ms) for ms in self.broker.lateness(name, self.size.punctual_messages)]
        levels = {"50": median(late), "99": quantile(late, 0.99), "Max": max(late)}
        self._keep(self._result(name, messages=len(late), latency=levels, errors=early(late)))
        self._tell(f"late by p50 {levels['50']:.0f} p99 {levels['99']:.0f} max {max(late):.0f} ms")

    def wait(self, name: str) -> None:
        """Measure memory and CPU of waiting pulls, and how soon a message wakes those of its
        queue."""
        pulls, queues = self.size.held_pulls, self.size.held_pulls // cases.PULLS_A_QUEUE
        self.broker.create_topics(Load(topic=name, queues=queues))
        address = self.broker.server.address
        with idle_connections(address, self.size.idle_connections), Wire(address) as sender:
            free = process.memory(self.broker.pid)
            with HeldPulls(address, name, queues, pulls) as held:
                held.wake(sender, 0)  # the broker has received all by now
                full = process.memory(self.broker.pid)
                time.sleep(self.size.waiting)
                before = process.cpu_seconds(self.broker.pid)
                time.sleep(self.size.waiting)
                idle_cpu = process.cpu_seconds(self.broker.pid) - before
                woken = range(min(self.size.wake_ups, queues))
                for queue in woken:
                    held.wake(sender, queue)  # a queue's first message creates its file
                delays = [
                    delay * 1000
                    for number in range(self.size.wake_ups)
                    for delay in held.wake(sender, woken[number % len(woken)])
                ]
        result = self._result(
            name,
            messages=self.size.wake_ups,
            memory=Memory(full.anonymous - free.anonymous, full.file - free.file),
            latency={"50": median(delays), "99": quantile(delays, 0.99)},
            seconds=idle_cpu / self.size.waiting,
        )
        self._keep(result)
        self._tell(
            f"{pulls:,} pulls take {result.memory.anonymous:.1f} MiB and {idle_cpu:.2f} s of CPU"
            f" in {self.size.waiting:g} s; woken in p50 {result.latency['50']:.3f} p99"
            f" {result.latency['99']:.3f} ms"
        )

    def cold_read(self, load: Load) -> None:
        """Measure sends alone, then during reads of messages that are only on disk."""
        cold = self.fill_cold(cases.COLD_READ)
        self.heat_by(load)
        self.send(cases.SEND_ALONE, load)
        beside = cases.timed(load, self.size, cases.SEND_BESIDE)
        beside = msgspec.structs.replace(beside, warmup=0, duration=min(1.0, beside.duration))
        self.broker.create_topics(beside)
        sent = []
        with ThreadPoolExecutor(max_workers=1) as reader:
            reading = reader.submit(generator.run, self.broker.port, cold)
            while not sent or not reading.done():
                sent.append(generator.run(self.broker.port, beside))
        read = reading.result()
        found = generator.together(sent)
        self._count(beside, found)
        self._keep_load(cases.SEND_BESIDE, beside, found, 0.0)
        self._keep(
            self._result(
                cases.COLD_READ,
                message_size=cold.size,
                messages=read.messages,
                consume_rate=read.rate,
                errors=read.failures,
                seconds=read.seconds,
            )
        )
        self._tell(f"{read.rate:12,.0f} msg/s from disk in {read.seconds:.1f} s")

    def disk(self, name: str, group: int, depth: int) -> None:
        """Measure O_DIRECT writes with RWF_DSYNC on the idle broker's disk."""
        folder = self.broker.server.config.parent
        found = raw_writes(str(folder), group, depth, self.size.warmup + self.size.duration)
        self._keep(
            self._result(
                name,
                message_size=group,
                latency={"50": found.p50_us / 1e3, "99": found.p99_us / 1e3},
                publish_rate=found.bytes_per_s / group,
            )
        )
        self._tell(f"{found.bytes_per_s / 1e6:,.0f} MB/s  p50 {found.p50_us:,.0f} us")

    def push(self, name: str) -> None:
        """Measure from send() to a push listener with the Java client on both sides, without
        other load."""
        self.broker.create_topics(Load(topic=name))
        driver = java_driver(self.broker.server.folder / "client", "JSON")
        try:
            found = driver.call(
                "endToEnd",
                **{"namesrv": self.broker.server.namesrv, "topic": name, "group": name},
                **{"count": self.size.pushed_messages, "pauseMs": PUSH_PAUSE_MS},
                skip=self.size.pushed_messages // 2,
            )
        finally:
            driver.close()
        delays = found["latenciesMs"]
        levels = {"50": median(delays), "99": quantile(delays, 0.99)}
        self._keep(self._result(name, messages=len(delays), latency=levels))
        self._tell(f"p50 {levels['50']:.3f} p99 {levels['99']:.3f} ms")

    def restart(self, name: str) -> None:
        """Kill the broker and measure the time until it stores messages again."""
        seconds = self.broker.restart_seconds()
        self._keep(self._result(name, seconds=seconds))
        self._tell(f"{seconds:.2f} s")

    def _result(self, name: str, driver: str | None = None, **measured: object) -> CaseResult:
        fields = {"workload": name, "driver": driver or self.broker.kind, "round": self.round}
        return CaseResult(**fields, **measured)  # type: ignore[arg-type]

    def _keep(self, result: CaseResult) -> None:
        self.results.append(result)
        self._tell(f"round {result.round} {result.driver:8} {result.workload}")

    def _measure(self, name: str, load: Load, stored: int = 0) -> None:
        before = process.cpu_seconds(self.broker.pid)
        found = generator.run(self.broker.port, load)
        spent = process.cpu_seconds(self.broker.pid) - before
        if load.mode == "send":
            self._count(load, found, stored)
        self._keep_load(name, load, found, spent)

    def _keep_load(
        self, name: str, load: Load, found: LoadResult, spent: float, driver: str | None = None
    ) -> None:
        rate = "publish_rate" if load.mode == "send" else "consume_rate"
        levels = found.percentiles_ms(*PERCENTILES.values())
        result = self._result(
            name,
            driver,
            message_size=load.size,
            topics=load.topics,
            partitions_per_topic=load.queues,
            messages=found.messages,
            latency=dict(zip(PERCENTILES, levels, strict=True)),
            quantiles=quantiles(found),
            errors=found.failures,
            broker_cpu_us=spent * 1e6 / max(1, found.all_messages),
            generator_cpu_us=found.cpu_seconds * 1e6 / max(1, found.messages),
            seconds=found.seconds,
            **{rate: found.rate},
        )
        self._keep(result)
        self._tell(
            f"{result.rate:12,.0f} msg/s  p50 {levels[0]:.3f} p99 {levels[2]:.3f} ms  "
            f"{result.broker_cpu_us:.2f} us a message  {result.errors} errors"
        )

    def _count(self, load: Load, found: LoadResult, before: int = 0) -> int:
        """Compare the stored messages with the acknowledged ones; returns the number stored."""
        self.stored += found.all_messages
        return await_count(lambda: self.broker.stored(load), before + found.all_messages)


def await_count(stored: Callable[[], int], wanted: int) -> int:
    """Wait until a broker has stored that many messages; returns their number.

    Raises WrongCountError when it stores another number.
    """
    # The reference fills its queues some time after the acknowledgement.
    deadline = time.monotonic() + DISPATCH_LIMIT_S
    while (there := stored()) < wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    if there != wanted:
        raise WrongCountError(f"{there} messages are stored, {wanted} were acknowledged")
    return there
