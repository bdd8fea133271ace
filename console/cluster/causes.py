"""Why a consumer group is behind, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from congreve.client.admin.groups import QueueLag
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.admin_bodies import ConsumerRunningInfo, ProcessQueueInfo
from congreve.remoting.messages.body import MessageQueue

_STUCK_MS = 60_000
_SILENT_PULL_MS = 120_000  # a poll takes up to 30 s


class Cause(msgspec.Struct, frozen=True):
    """A sentence about what keeps a group back, or how far it is; `advice` says what to do."""

    what: str
    advice: str | None = None


class Member(msgspec.Struct):
    """A client of a group; `info` is None if it did not answer."""

    client_id: str
    transport: str
    """"remoting" or "grpc"."""
    info: ConsumerRunningInfo | None = None


class GroupState(msgspec.Struct):
    """What brokers and members say about a group at one time."""

    group: str
    queues: Sequence[QueueLag]
    members: Sequence[Member]
    subscriptions: Mapping[str, Mapping[str, str]] = {}
    """By broker, the expression for each topic."""
    broadcast: bool = False
    disabled_at: Sequence[str] = ()
    """Brokers where the group may not consume."""
    unreadable: Sequence[tuple[str, str]] = ()
    """Topic and broker of queues without the permission to be read."""
    silent: Sequence[str] = ()
    """Brokers that did not answer."""
    rates: Mapping[str, tuple[float, float]] = {}
    """By topic, the messages that came and that the group got a second, in the last minute."""


def causes_of(state: GroupState, now_ms: int) -> list[Cause]:
    """How far the group is, and all that keeps it back, the nearest cause first."""
    return list(_causes(state, now_ms))


def _causes(state: GroupState, now_ms: int) -> Iterator[Cause]:
    yield _progress(state)
    for name in state.silent:
        yield Cause(
            f"broker {name} does not answer: its queues are not counted",
            "look at it with `congreve cluster status`",
        )
    for name in state.disabled_at:
        yield Cause(
            f"the group may not consume at broker {name}",
            f"allow it: `congreve group create {state.group} --enable`",
        )
    for topic, name in state.unreadable:
        yield Cause(
            f"topic {topic} may not be read at broker {name}",
            f"allow it: `congreve topic permission {topic} read-write`",
        )
    if not state.members:
        yield Cause("no member is connected", "start one with a name server of this cluster")
        return
    yield Cause(_connected(state.members))
    if state.broadcast:
        yield Cause("each member gets all messages and keeps its own offsets: no broker knows them")
    yield from _subscriptions(state)
    yield from _queues_without_member(state)
    for topic in sorted({queue.topic for queue in state.queues if queue.lag}):
        yield from _speed(state, topic)
    for member in state.members:
        yield from _member(member, now_ms)


def _progress(state: GroupState) -> Cause:
    if not state.queues:
        return Cause("no broker has an offset of the group", "members commit some every 5 s")
    behind = [queue for queue in state.queues if queue.lag]
    if not behind:
        return Cause(f"the group has consumed all that its {len(state.queues)} queues have")
    text = (
        f"{sum(queue.lag for queue in behind):,} messages are not consumed, in {len(behind)} of"
        f" {len(state.queues)} queues; the oldest waits for"
        f" {_age(max(queue.lag_ms for queue in behind))}"
    )
    retried = sum(queue.lag for queue in behind if queue.topic.startswith(RETRY_PREFIX))
    if retried:
        text += f"; {retried:,} of them are retries"
    out = sum(queue.in_flight or 0 for queue in state.queues)
    if out:
        oldest_ms = max(queue.in_flight_ms or 0 for queue in state.queues)
        text += f"; members have {out:,} and have not settled them, one for {_age(oldest_ms)}"
    return Cause(text)


def _connected(members: Sequence[Member]) -> str:
    transports = sorted({member.transport for member in members})
    if len(members) == 1:
        return f"1 member is connected, by {transports[0]}"
    counts = [
        f"{sum(member.transport == each for member in members)} by {each}" for each in transports
    ]
    return f"{len(members)} members are connected: {', '.join(counts)}"


def _subscriptions(state: GroupState) -> Iterator[Cause]:
    known: dict[str, set[str]] = {}
    for of_broker in state.subscriptions.values():
        for topic, expression in of_broker.items():
            known.setdefault(topic, set()).add(expression)
    for topic, expressions in sorted(known.items()):
        if len(expressions) > 1:
            yield Cause(
                f"members subscribe to {topic} in different ways: {', '.join(sorted(expressions))}",
                "give all members of a group the same subscriptions",
            )
    wanted = {queue.topic for queue in state.queues if queue.lag}
    for topic in sorted(wanted - known.keys() if known else ()):
        if not topic.startswith(RETRY_PREFIX):
            yield Cause(
                f"no member subscribes to {topic}",
                "start one that does, or reset the group's offsets there to the end",
            )


def _queues_without_member(state: GroupState) -> Iterator[Cause]:
    infos = [member.info for member in state.members if member.info is not None]
    held = {queue for info in infos for queue in info.mq_table}
    popped = any(info.mq_pop_table for info in infos)
    if len(infos) < len(state.members) or not held or popped or state.broadcast:
        return
    for each in state.queues:
        queue = MessageQueue(topic=each.topic, broker_name=each.broker_name, queue_id=each.queue_id)
        if each.lag and queue not in held:
            yield Cause(
                f"no member has queue {each.queue_id} of {each.topic} at {each.broker_name}",
                "a rebalance takes up to 20 s; after that, look for a member that divides them"
                " in another way",
            )


def _speed(state: GroupState, topic: str) -> Iterator[Cause]:
    came, got = state.rates.get(topic, (0.0, 0.0))
    if not came and not got:
        return
    lag = sum(queue.lag for queue in state.queues if queue.topic == topic)
    text = f"{came:,.1f} messages of {topic} come a second, and the group gets {got:,.1f}"
    if got > came:
        yield Cause(f"{text}: it has caught up in {_age(1000 * lag / (got - came))}")
    elif came > got:
        yield Cause(f"{text}: it falls behind", "add members, as long as there are queues for them")


def _member(member: Member, now_ms: int) -> Iterator[Cause]:
    info = member.info
    if info is None:
        return
    ordered = info.properties.get("PROP_CONSUMEORDERLY") == "true"
    for queue, cached in info.mq_table.items():
        name = f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name}"
        yield from _cached(member, name, cached, now_ms, ordered=ordered)
    for topic, status in sorted(info.status_table.items()):
        if status.consume_failed_tps > 0:
            yield Cause(
                f"{member.client_id} fails {status.consume_failed_tps:,.1f} messages of {topic} a"
                " second",
                "look at its log: failed messages come again later",
            )
        if status.consume_rt >= 100:
            yield Cause(
                f"a message of {topic} takes {status.consume_rt:,.0f} ms in the listener of"
                f" {member.client_id}, which consumes {status.consume_ok_tps:,.1f} a second",
                "make the listener faster, or give the member more threads",
            )


def _cached(
    member: Member, name: str, cached: ProcessQueueInfo, now_ms: int, *, ordered: bool
) -> Iterator[Cause]:
    idle_ms = now_ms - cached.last_consume_timestamp
    if cached.cached_msg_count and idle_ms > _STUCK_MS:
        yield Cause(
            f"{member.client_id} has {cached.cached_msg_count:,} messages of {name} in memory, and"
            f" has finished none for {_age(idle_ms)}: it is at offset"
            f" {cached.cached_msg_min_offset}",
            f"see what its threads do: `mqadmin consumerStatus -s -i {member.client_id}`",
        )
    silent_ms = now_ms - cached.last_pull_timestamp
    if cached.last_pull_timestamp and silent_ms > _SILENT_PULL_MS:
        yield Cause(f"{member.client_id} has not pulled {name} for {_age(silent_ms)}")
    if ordered and not cached.locked:
        yield Cause(f"{member.client_id} consumes in order, and does not hold the lock of {name}")


def _age(milliseconds: float) -> str:
    """A time in one unit."""
    for size, unit in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes")):
        if milliseconds >= 2 * size:
            return f"{milliseconds / size:.0f} {unit}"
    return f"{milliseconds / 1000:.1f} s"
