"""Sends one request of a tool to a chosen queue, once (RocketMQ: DefaultMQProducerImpl)."""

import time

from congreve.client.errors import BrokerError
from congreve.client.outgoing import Outgoing
from congreve.client.results import SendStatus
from congreve.client.transport.instance import ClientInstance
from congreve.client.transport.route import DEFAULT_TOPIC_QUEUES
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC, RETRY_PREFIX
from congreve.remoting.messages.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader

PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""The producer group of tools (RocketMQ: MixAll.CLIENT_INNER_PRODUCER_GROUP)."""
_STORED = frozenset(SendStatus)


async def send(
    client: ClientInstance, address: str, queue_id: int, outgoing: Outgoing
) -> SendMessageResponseHeader:
    """Send a message or a batch to a queue of the broker at `address`.

    Raises BrokerError when the broker did not store it, RemotingError when that is not known.
    """
    header = SendMessageRequestHeaderV2(
        producer_group=PRODUCER_GROUP,
        topic=outgoing.topic,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue_id,
        sys_flag=outgoing.sys_flag,
        born_timestamp=int(time.time() * 1000),
        flag=outgoing.flag,
        properties=outgoing.properties,
        reconsume_times=0,
        # Otherwise a group without retries gets it as a dead letter.
        max_reconsume_times=1 if outgoing.topic.startswith(RETRY_PREFIX) else None,
        batch=outgoing.is_batch,
    )
    answer = await client.ask(address, outgoing.code, header.fields(), outgoing.body)
    if answer.code not in _STORED:
        raise BrokerError(answer.code, answer.remark, address)
    return SendMessageResponseHeader.read(answer)
