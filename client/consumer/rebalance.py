"""Strategies that assign queues to the members of a group (RocketMQ: the AllocateMessageQueue*
classes).

All members of a group, of whatever language, must use the same strategy: each computes its own
share from the same two sorted lists.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence

from congreve.client.errors import InvalidSettingError, RebalanceError
from congreve.client.logs import Log
from congreve.client.message import MessageQueue
from congreve.client.user_code import raise_unless_failure

log = Log(__name__)

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""A function (own client id, queues of a topic, client ids of the group) -> own queues."""

VIRTUAL_NODES = 10


def share_of(
    strategy: Strategy,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
) -> list[MessageQueue]:
    """Apply a strategy; a client that is not among `client_ids` gets no queue.

    Raises RebalanceError when the strategy raises an error, which is logged.
    """
    members = sorted(set(client_ids))
    if client_id not in members:
        return []
    try:
        return strategy(client_id, sorted(queues), members)
    except BaseException as error:
        raise_unless_failure(error)
        log.exception("strategy failed", client_id=client_id, queues=len(queues))
        raise RebalanceError(f"the strategy raised {type(error).__name__}: {error}") from error


def averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Contiguous queues, one more for each of the first clients when the division has a
    remainder (AVG, the default)."""
    index = client_ids.index(client_id)
    share, rest = divmod(len(queues), len(client_ids))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (1 if index < rest else 0)])


def by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Every n-th queue, where n is the number of clients (AVG_BY_CIRCLE)."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def by_config(own: Collection[MessageQueue]) -> Strategy:
    """Return a strategy that assigns the given queues, as far as they exist (CONFIG)."""
    chosen = frozenset(own)

    def strategy(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Keep the configured queues that exist."""
        return [queue for queue in queues if queue in chosen]

    return strategy


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Return a strategy for queues of brokers named ``room@name`` in one of the rooms
    (MACHINE_ROOM)."""
    allowed = frozenset(rooms)

    def strategy(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Share the queues of the rooms."""
        own = [queue for queue in queues if _room(queue) in allowed]
        index, clients = client_ids.index(client_id), len(client_ids)
        share, rest = divmod(len(own), clients)
        taken = own[index * share : (index + 1) * share]
        return taken + ([own[clients * share + index]] if index < rest else [])

    return strategy


def _room(queue: MessageQueue) -> str | None:
    parts = queue.broker_name.split("@")
    return parts[0] if len(parts) == 2 else None


def machine_room_nearby(
    strategy: Strategy,
    room_of_broker: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
) -> Strategy:
    """Return a strategy by which clients share the queues of their own room by `strategy`, and all
    clients share the queues of rooms without clients (MACHINE_ROOM_NEARBY).

    The strategy raises InvalidSettingError when a resolver returns no room.
    """

    def nearby(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Share the queues of the own room and of rooms without clients."""
        own_room = _named(room_of_client(client_id), client_id)
        by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_room.setdefault(_named(room_of_broker(queue), queue), []).append(queue)
        clients: dict[str, list[str]] = {}
        for each in client_ids:
            clients.setdefault(_named(room_of_client(each), each), []).append(each)
        share: list[MessageQueue] = []
        if own_room in by_room:
            share += strategy(client_id, by_room.pop(own_room), clients[own_room])
        for room, rest in sorted(by_room.items()):
            if room not in clients:
                share += strategy(client_id, rest, client_ids)
        return share

    return nearby


def _named(room: str, of: object) -> str:
    if not room:
        raise InvalidSettingError(f"the resolver returned no machine room for {of}")
    return room


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Strategy:
    """Return a strategy that assigns each queue to the next client on a ring of MD5 hashes
    (CONSISTENT_HASH).

    Raises InvalidSettingError when `virtual_nodes` is below 1.
    """
    if virtual_nodes < 1:
        raise InvalidSettingError(f"{virtual_nodes} virtual nodes: at least 1 is required")

    def strategy(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Assign queues by the ring."""
        ring = _ring(client_ids, virtual_nodes)
        hashes = sorted(ring)
        return [
            queue
            for queue in queues
            if ring[hashes[bisect_left(hashes, _hash(_java_text(queue))) % len(hashes)]]
            == client_id
        ]

    return strategy


def _ring(client_ids: Sequence[str], virtual_nodes: int) -> Mapping[int, str]:
    return {
        _hash(f"{client_id}-{node}"): client_id
        for client_id in client_ids
        for node in range(virtual_nodes)
    }


def _hash(key: str) -> int:
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
