"""What one broker goes through from its start to its end, and what was measured on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import msgspec
from harness.drivers import java_driver
from harness.wire import Wire

from congreve.io_backends.measure import raw_writes

from . import cases, generator, process
from .brokers import Running, running
from .cases import Size
from .generator import Load, LoadResult
from .process import Memory
from .waiting import HeldPulls, idle_connections

PERCENTILES = {"50": 50.0, "95": 95.0, "99": 99.0, "999": 99.9, "Max": 100.0}
DISPATCH_LIMIT_S = 600.0
TIMES_MS = (300, 2_000)  # the soonest, and how far the others are apart
PUSH_PAUSE_MS = 5
Tell = Callable[[str], None]


class CaseResult(msgspec.Struct, omit_defaults=True, kw_only=True, rename="camel"):
    """One case of one broker in one round; names as OpenMessaging Benchmark has them.

    Rates are messages a second, latencies milliseconds of whole requests, `broker_cpu_us` is the
    broker's user and system time for each message, `generator_cpu_us` the generator's.
    """

    workload: str
    driver: str
    round: int
    message_size: int = 0
    topics: int = 0
    partitions_per_topic: int = 0
    messages: int = 0
    publish_rate: float = 0.0
    consume_rate: float = 0.0
    latency: dict[str, float] = {}
    quantiles: dict[str, float] = {}
    errors: int = 0
    broker_cpu_us: float = 0.0
    generator_cpu_us: float = 0.0
    memory: Memory | None = None
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Whichever the case has."""
        return self.publish_rate or self.consume_rate


class WrongCountError(Exception):
    """A broker stored something else than it acknowledged."""


class Session:
    """The cases of one broker that runs; results are kept in `results`."""

    def __init__(self, broker: Running, size: Size, number: int, tell: Tell) -> None:
        self.broker = broker
        self.size = size
        self.round = number
        self.results: list[CaseResult] = []
        self.stored = 0
        self._tell = tell

    def send(self, name: str, load: Load, *, queues_exist: bool = False) -> None:
        """A timed send on a topic of its own, and whether all that was acknowledged is there."""
        load = cases.timed(load, self.size, name)
        self.broker.create_topics(load)
        before = 0
        if queues_exist:
            first = cases.one_each(load, name)
            before = self._count(first, generator.run(self.broker.port, first))
        self._measure(name, load, before)

    def pull(self, name: str, load: Load) -> None:
        """Fill a topic, then pull it over and over: it is in the page cache."""
        filled = cases.fill(name, self.size.pull_messages, load.size, load.queues)
        self.broker.create_topics(filled)
        self._count(filled, generator.run(self.broker.port, filled))
        self._measure(name, cases.timed(load, self.size, name))

    def fill(self, name: str, messages: int, body: int) -> None:
        """Messages that are only there to be there."""
        load = cases.fill(name, messages, body)
        self.broker.create_topics(load)
        self._count(load, generator.run(self.broker.port, load))

    def heat(self) -> None:
        """Load that is not measured: the JIT compiles, caches fill."""
        load = Load(topic="heat", warmup=0, duration=self.size.jit)
        pull = msgspec.structs.replace(cases.PULLS["pull-32x128B"], topic="heat", queues=4)
        self.broker.create_topics(load)
        self._count(load, generator.run(self.broker.port, load))
        for sql in (None, cases.FILTERED_PULL.sql):
            pull = msgspec.structs.replace(pull, warmup=0, duration=self.size.jit / 5, sql=sql)
            generator.run(self.broker.port, pull)

    def heat_by(self, load: Load) -> None:
        """The same with this load."""
        load = msgspec.structs.replace(load, topic="warm", warmup=0, duration=self.size.jit)
        self.broker.create_topics(load)
        self._count(load, generator.run(self.broker.port, load))

    def memory(self, name: str) -> None:
        """What the broker holds now."""
        found = process.memory(self.broker.pid)
        self._keep(self._result(name, memory=found, messages=self.stored))
        self._tell(f"{found.anonymous:,.0f} MiB, and {found.file:,.0f} MiB of mapped files")

    def delay(self, name: str) -> None:
        """Messages that have all come due while the broker was down; how fast it delivers them."""
        load = cases.delayed(name, self.size)
        self.broker.create_topics(load)
        found = generator.run(self.broker.port, load)
        self._await(lambda: self.broker.parked(load.delay_level), found.all_messages)
        self.broker.restart(messageDelayLevel="1s")
        self._await(lambda: self.broker.stored(load), found.all_messages)
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
        """What it takes to hold messages that wait for times of their own."""
        load = cases.timed_messages(name, self.size)
        self.broker.create_topics(load)
        found = generator.run(self.broker.port, load)
        self._await(self.broker.timed, found.all_messages)
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
        """How late such messages come while nothing else goes on."""
        load = Load(topic=name, queues=1)
        self.broker.create_topics(load)
        for number in range(self.size.punctual_messages):
            self.broker.send_timed(name, TIMES_MS[0] + number * 37 % TIMES_MS[1])
            time.sleep(PUSH_PAUSE_MS / 1000)
        self._await(lambda: self.broker.stored(load), self.size.punctual_messages)
        late = [float(ms) for ms in self.broker.lateness(name, self.size.punctual_messages)]
        levels = {"50": median(late), "99": quantile(late, 0.99), "Max": max(late)}
        self._keep(self._result(name, messages=len(late), latency=levels, errors=early(late)))
        self._tell(f"late by p50 {levels['50']:.0f} p99 {levels['99']:.0f} max {max(late):.0f} ms")

    def wait(self, name: str) -> None:
        """Memory and CPU that waiting pulls take, and how soon a message wakes those of a queue."""
        pulls, queues = self.size.held_pulls, self.size.held_pulls // cases.PULLS_A_QUEUE
        self.broker.create_topics(Load(topic=name, queues=queues))
        address = self.broker.server.address
        with idle_connections(address, self.size.idle_connections), Wire(address) as sender:
            free = process.memory(self.broker.pid)
            with HeldPulls(address, name, queues, pulls) as held:
                held.wake(sender, 0)  # all were taken in by now
                full = process.memory(self.broker.pid)
                time.sleep(self.size.waiting)
                before = process.cpu_seconds(self.broker.pid)
                time.sleep(self.size.waiting)
                idle_cpu = process.cpu_seconds(self.broker.pid) - before
                woken = range(min(self.size.wake_ups, queues))
                for queue in woken:
                    held.wake(sender, queue)  # a queue's first message makes its file
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
        """Sends alone, then while somebody reads what only the disk has."""
        messages = self.size.cold_bytes // cases.COLD_PULL.size
        filled = cases.fill(cases.COLD_READ, messages, cases.COLD_PULL.size, cases.COLD_PULL.queues)
        self.broker.create_topics(filled)
        self._count(filled, generator.run(self.broker.port, filled))
        # The quicker the sends the sooner a message is 40 % of the memory old; then a pull gets
        # eight of 64 KiB. Both read the same here.
        self.broker.restart_cold(
            maxTransferCountOnMessageInDisk=str(cases.COLD_PULL.batch),
            maxTransferBytesOnMessageInDisk=str(256 << 10),
        )
        self.heat_by(load)
        self.send(cases.SEND_ALONE, load)
        cold = msgspec.structs.replace(
            cases.COLD_PULL, topic=cases.COLD_READ, count=max(1, messages // cases.COLD_PULL.batch)
        )
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
        """O_DIRECT writes with RWF_DSYNC beside the broker's store, which rests meanwhile."""
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
        """From send() to a push listener: the Java client on both sides, nothing else going on."""
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
        """Kill it and wait until it stores again."""
        seconds = self.broker.restart_seconds()
        self._keep(self._result(name, seconds=seconds))
        self._tell(f"{seconds:.2f} s")

    def _result(self, name: str, **measured: object) -> CaseResult:
        fields = {"workload": name, "driver": self.broker.kind, "round": self.round}
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

    def _keep_load(self, name: str, load: Load, found: LoadResult, spent: float) -> None:
        rate = "publish_rate" if load.mode == "send" else "consume_rate"
        levels = found.percentiles_ms(*PERCENTILES.values())
        result = self._result(
            name,
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
        """Hold what the topics have against what was acknowledged; the messages in them."""
        self.stored += found.all_messages
        return self._await(lambda: self.broker.stored(load), before + found.all_messages)

    def _await(self, stored: Callable[[], int], wanted: int) -> int:
        # The reference fills its queues some time after it has acknowledged.
        deadline = time.monotonic() + DISPATCH_LIMIT_S
        while (there := stored()) < wanted and time.monotonic() < deadline:
            time.sleep(0.1)
        if there != wanted:
            raise WrongCountError(
                f"{self.broker.kind} has {there} messages, {wanted} were acknowledged"
            )
        return there


def early(lateness_ms: list[float]) -> int:
    """How many came before their time."""
    return sum(ms < 0 for ms in lateness_ms)


def quantile(values: list[float], level: float) -> float:
    """The value below which that share of them lies."""
    return sorted(values)[min(int(len(values) * level), len(values) - 1)]


def quantiles(found: LoadResult) -> dict[str, float]:
    """Percentile to milliseconds at HdrHistogram's steps, for plots."""
    steps = found.histogram().get_percentile_iterator(ticks_per_half_distance=5)
    return {
        f"{step.percentile_level_iterated_to:.4f}": step.value_iterated_to
        / generator.MILLISECOND_NS
        for step in steps
    }


def hot(session: Session) -> None:
    """ASYNC_FLUSH: sends, pulls, memory, many queues."""
    size = session.size
    session.memory("memory-idle")
    session.heat()
    for name, load in cases.ASYNC_SENDS.items():
        session.send(name, load)
    for name, load in cases.PULLS.items():
        session.pull(name, load)
    session.fill("memory", max(32, size.memory_messages - session.stored), 128)
    session.memory("memory-after-messages")
    session.send(cases.ONE_QUEUE, Load(queues=1))
    session.send(cases.MANY_QUEUES, cases.many_queues(size), queues_exist=True)


def wait(session: Session) -> None:
    """Pulls that wait, among connections that say nothing."""
    session.wait(cases.WAITING)


def push(session: Session) -> None:
    """Messages to a push listener, one at a time."""
    session.push(cases.PUSHED)


def filters(session: Session) -> None:
    """Pulls through a SQL92 filter."""
    session.heat()
    session.pull("pull-32x128B-sql", cases.FILTERED_PULL)


def sync(session: Session) -> None:
    """SYNC_FLUSH, beside what the disk can do."""
    session.heat()
    session.disk(cases.RAW_ALONE, 4 * cases.KIB, 1)
    session.disk(cases.RAW_TOGETHER, 64 * cases.KIB, 4)
    for name, load in cases.SYNC_SENDS.items():
        session.send(name, load)


def unsynced(session: Session) -> None:
    """ASYNC_FLUSH under the load of SYNC_FLUSH."""
    session.heat()
    session.send(cases.ASYNC_64, cases.SYNC_SENDS["sync-4x64"])


def cold(session: Session) -> None:
    """ASYNC_FLUSH beside a reader of old messages."""
    session.heat()
    session.cold_read(cases.ASYNC_SENDS["send-128B"])


def restart(session: Session) -> None:
    """A store of some size, kill -9, and back."""
    session.fill("store", session.size.restart_bytes // 1250, cases.KIB)
    session.restart("ready-after-kill")


def delay(session: Session) -> None:
    """Delivery of delayed messages that are all due."""
    session.delay("delay-level-1")


def timers(session: Session) -> None:
    """Messages with times of their own, of which RocketMQ 4.9.4 knows nothing."""
    if session.broker.kind == "congreve":
        session.pending(cases.PENDING)
        session.punctual(cases.PUNCTUAL)


def transactions(session: Session) -> None:
    """Half messages and their commits, 64 transactions in flight."""
    session.heat()
    session.heat_by(cases.TRANSACTIONS)
    session.send("transactions", cases.TRANSACTIONS)


SESSIONS: dict[str, tuple[Callable[[Session], None], str]] = {
    "hot": (hot, "ASYNC_FLUSH"),
    "restart": (restart, "ASYNC_FLUSH"),
    "wait": (wait, "ASYNC_FLUSH"),
    "filter": (filters, "ASYNC_FLUSH"),
    "push": (push, "ASYNC_FLUSH"),
    "delay": (delay, "ASYNC_FLUSH"),
    "timers": (timers, "ASYNC_FLUSH"),
    "transactions": (transactions, "ASYNC_FLUSH"),
    "async": (unsynced, "ASYNC_FLUSH"),
    "sync": (sync, "SYNC_FLUSH"),
    "cold": (cold, "ASYNC_FLUSH"),
}


def play(
    name: str, kind: str, size: Size, number: int, folder: Path, tell: Tell
) -> Iterator[CaseResult]:
    """One session on a fresh broker of that kind."""
    steps, flush = SESSIONS[name]
    # Touching 4 GiB of heap takes the reference a second that a restart need not pay.
    with (
        process.full_page_cache(folder) if size.fill_page_cache else nullcontext(),
        running(kind, folder / kind, flush=flush, pretouch=name != "restart") as broker,
    ):
        session = Session(broker, size, number, tell)
        steps(session)
        yield from session.results
