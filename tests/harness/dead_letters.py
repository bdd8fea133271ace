"""Dead letters of one group in a broker."""

from __future__ import annotations

from congreve.client import AdminClient, Message
from congreve.client.admin.one_send import send
from congreve.client.admin.queue_reader import readers
from congreve.client.outgoing import prepare_batches
from congreve.records.message.properties import KEYS, RETRY_TOPIC
from congreve.records.message.topics import dlq_topic, retry_topic

GROUP, TOPIC = "g", "orders"


async def make_letters(
    admin: AdminClient,
    count: int,
    *,
    topic: str = TOPIC,
    size: int = 100,
    cluster: str = "DefaultCluster",
    **properties: str,
) -> None:
    """Store dead letters of GROUP, with further properties; the key of each is its number."""
    for name, queues in ((TOPIC, 4), (retry_topic(GROUP), 1), (dlq_topic(GROUP), 1)):
        await admin.create_topic(name, queues=queues, cluster=cluster)
    messages = [
        Message(
            topic=dlq_topic(GROUP),
            body=b"x" * size,
            properties={RETRY_TOPIC: topic, KEYS: str(number), **properties},
        )
        for number in range(count)
    ]
    (address,) = (await admin.masters(cluster)).values()
    ids = (f"{number:032X}" for number in range(count))
    for outgoing in prepare_batches(messages, ids.__next__, body_max=1 << 20):
        await send(admin, address, 0, outgoing)


async def stored_keys(admin: AdminClient, topic: str = TOPIC) -> list[int]:
    """The keys of all messages of a topic, sorted."""
    found = []
    for reader in await readers(admin, admin.brokers, topic):
        found += [int(message.keys) for message in await reader.read(*await reader.bounds())]
    return sorted(found)
