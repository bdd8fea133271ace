"""Who of a group reads which queues (RocketMQ: the AllocateMessageQueue* classes).

All members of a group, of whatever language, must have the same strategy: each computes its own
share from the same two lists, which a strategy gets in rising order.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence

from congreve.client.errors import InvalidSettingError
from congreve.client.message import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""(own client id, queues of a topic, client ids of the group) -> own queues."""

VIRTUAL_NODES = 10


def share_of(
    strategy: Strategy,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
) -> list[MessageQueue]:
    """What a strategy gives; who is not among `client_ids` gets nothing."""
    members = sorted(set(client_ids))
    return strategy(client_id, sorted(queues), members) if client_id in members else []


def averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Neighbours, one more for each of the first clients where it is uneven (AVG, the default)."""
    index = client_ids.index(client_id)
    share, rest = divmod(len(queues), len(client_ids))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (1 if index < rest else 0)])


def by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Queues are dealt out like cards (AVG_BY_CIRCLE)."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def by_config(own: Collection[MessageQueue]) -> Strategy:
    """Always the given queues, as far as they are there (CONFIG)."""
    chosen = frozenset(own)

    def strategy(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return [queue for queue in queues if queue in chosen]

    return strategy


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Queues of brokers that are named ``room@name`` with one of the rooms (MACHINE_ROOM)."""
    allowed = frozenset(rooms)

    def strategy(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
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
    """Clients share the queues of their own room by `strategy`; all share those of rooms without
    clients (MACHINE_ROOM_NEARBY). InvalidSettingError where a resolver names no room."""

    def nearby(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
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
        raise InvalidSettingError(f"no machine room is named for {of}")
    return room


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Strategy:
    """Each queue goes to the next client on a ring of MD5 hashes (CONSISTENT_HASH)."""
    if virtual_nodes < 1:
        raise InvalidSettingError(f"{virtual_nodes} virtual nodes: at least 1 is needed")

    def strategy(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
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
