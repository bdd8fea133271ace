"""The loads, and the amount of each by size of the run."""

from __future__ import annotations

import msgspec

from congreve.console.loadgen.generator import Load

KIB = 1024
QUEUES = 4


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts and times of a run; times in seconds."""

    rounds: int
    jit: float  # load before anything is measured: the JIT needs 10 s of a quiet machine
    warmup: float
    duration: float
    settle: float  # before memory is read: a broker's housekeeping runs every 10 s
    pull_messages: int  # in the topics that are pulled from
    delayed_messages: int  # of one level, all due at once
    timed_messages: int  # pending, each at a time of its own within TIMES_SPAN_S
    punctual_messages: int  # soon due, while those are pending
    memory_messages: int  # stored before memory is read the second time
    cold_bytes: int  # read from disk while others send
    restart_bytes: int  # of the store that a killed broker opens again
    topics: int
    queues_per_topic: int
    held_pulls: int
    idle_connections: int
    waiting: float  # while nothing arrives, after as long that is not measured
    wake_ups: int  # messages to queues where pulls wait
    pushed_messages: int  # to a push listener, one each 5 ms
    storm_topics: int  # that GET_ALL_TOPIC_CONFIG answers with
    storm_clients: int  # that send heartbeats
    fill_page_cache: bool = True


SIZES = {
    "full": Size(
        rounds=2,
        jit=20,
        warmup=2,
        duration=5,
        settle=12,
        pull_messages=640_000,
        delayed_messages=1_000_000,
        timed_messages=10_000_000,
        punctual_messages=1_000,
        memory_messages=10_000_000,
        cold_bytes=4 << 30,
        restart_bytes=5_000_000_000,
        topics=1_000,
        queues_per_topic=8,
        held_pulls=10_000,
        idle_connections=10_000,
        waiting=8,
        wake_ups=1_000,
        pushed_messages=4_000,
        storm_topics=2_000,
        storm_clients=1_000,
    ),
    "short": Size(
        rounds=1,
        jit=12,
        warmup=1,
        duration=2,
        settle=12,
        pull_messages=320_000,
        delayed_messages=300_000,
        timed_messages=1_000_000,
        punctual_messages=1_000,
        memory_messages=1_000_000,
        cold_bytes=1 << 30,
        restart_bytes=1_000_000_000,
        topics=1_000,
        queues_per_topic=8,
        held_pulls=10_000,
        idle_connections=10_000,
        waiting=8,
        wake_ups=1_000,
        pushed_messages=4_000,
        storm_topics=2_000,
        storm_clients=1_000,
    ),
    "small": Size(
        rounds=1,
        jit=0.1,
        warmup=0.1,
        duration=0.3,
        settle=0,
        pull_messages=6_400,
        delayed_messages=4_000,
        timed_messages=4_000,
        punctual_messages=20,
        memory_messages=20_000,
        cold_bytes=48 << 20,
        restart_bytes=10_000_000,
        topics=20,
        queues_per_topic=8,
        held_pulls=160,
        idle_connections=50,
        waiting=0.3,
        wake_ups=40,
        pushed_messages=40,
        storm_topics=50,
        storm_clients=40,
        fill_page_cache=False,
    ),
}

ASYNC_SENDS = {
    "send-128B": Load(),
    "send-128B-binary": Load(binary=True),
    "send-1KiB": Load(size=KIB),
    "batch-32x1KiB": Load(size=KIB, batch=32, inflight=8),
    "send-one-at-a-time": Load(connections=1, inflight=1),
}
SYNC_SENDS = {
    "sync-one-at-a-time": Load(connections=1, inflight=1),
    "sync-4x8": Load(inflight=8),
    "sync-4x64": Load(inflight=64),
    "sync-batch-32x1KiB": Load(size=KIB, batch=32, inflight=8),
}
# SYNC_FLUSH is compared with the reference's ASYNC_FLUSH and with the raw disk.
ASYNC_64 = "async-4x64"
RAW_ALONE = "raw-4KiB"
RAW_TOGETHER = "raw-64KiB-x4"
PULLS = {
    "pull-32x1KiB": Load(mode="pull", connections=8, inflight=1, batch=32, size=KIB, queues=8),
    "pull-32x128B": Load(mode="pull", connections=8, inflight=1, batch=32, size=128, queues=8),
}
COLD_PULL = PULLS["pull-32x1KiB"]
SEND_ALONE = "send-before-cold-read"
SEND_BESIDE = "send-beside-cold-read"
COLD_READ = "cold-read"
# All messages of the generator pass, so that both brokers answer with the same messages.
FILTERED_PULL = msgspec.structs.replace(
    PULLS["pull-32x128B"],
    sql="TAGS IN ('TagA', 'TagB') AND UNIQ_KEY IS NOT NULL AND (price > 5 OR price IS NULL)",
)
# Ordinary producers: many connections with little in flight.
CONNECTIONS = {
    f"send-{connections}x{inflight}": Load(connections=connections, inflight=inflight)
    for connections, inflight in ((8, 1), (64, 1), (500, 1), (2_000, 1), (500, 4))
}
SINK = "sink"
PROBE = Load(connections=1, inflight=1)
PROBE_ALONE = "probe-alone"
CREATED = "created-topics"
BEHIND = "behind"
# Storms that a probe of sends is beside, and what a table calls them.
STORMS = {
    "probe-beside-all-topics": "GET_ALL_TOPIC_CONFIG",
    "probe-beside-runtime-info": "GET_BROKER_RUNTIME_INFO",
    "probe-beside-changes": "UPDATE_AND_CREATE_TOPIC",
    "probe-beside-heartbeats": "heartbeats of 1,000 clients",
    "probe-beside-store-read": "Arrow reads of the store's files",
    "probe-beside-behind": "a consumer far behind",
}
TRANSACTIONS = Load(inflight=16, transaction=True)
TIMES_SPAN_S = 39 * 86_400
PENDING = "pending-times"
PUNCTUAL = "punctual"
PULLS_A_QUEUE = 8
WAITING = "waiting"
PUSHED = "push-listener"
ONE_QUEUE = "send-128B-1-queue"
MANY_QUEUES = "send-128B-many-queues"


def storm_of(probe: str) -> str:
    """The name of the storm that a probe was beside."""
    return probe.replace("probe-beside", "storm")


def timed(load: Load, size: Size, topic: str) -> Load:
    """The load for the size's duration, on a topic of its own."""
    return msgspec.structs.replace(load, topic=topic, warmup=size.warmup, duration=size.duration)


def fill(topic: str, messages: int, body: int, queues: int = QUEUES) -> Load:
    """This many messages, stored as fast as possible: in batches of 32."""
    requests = max(1, messages // 32)
    return Load(topic=topic, queues=queues, size=body, batch=32, inflight=8, count=requests)


def many_queues(size: Size) -> Load:
    """Each send goes to another topic than the one before."""
    return Load(topics=size.topics, queues=size.queues_per_topic)


def delayed(topic: str, size: Size) -> Load:
    """Messages of the first delay level."""
    return Load(topic=topic, inflight=64, count=size.delayed_messages, delay_level=1)


def timed_messages(topic: str, size: Size) -> Load:
    """Messages of which hardly any comes due during the measurement."""
    return Load(topic=topic, inflight=64, count=size.timed_messages, deliver_within=TIMES_SPAN_S)


def one_each(load: Load, topic: str) -> Load:
    """A message for every queue of the load."""
    return msgspec.structs.replace(load, topic=topic, count=load.topics * load.queues)
