"""Sends failed messages back for a later retry (RocketMQ:
DefaultMQPushConsumerImpl.sendMessageBack)."""

import random

from congreve.base.errors import CongreveError
from congreve.client.consumer.group_client import GroupClient
from congreve.client.logs import Log
from congreve.client.message import ReceivedMessage
from congreve.client.namespace import wrap, wrap_queue
from congreve.client.transport.route import DEFAULT_TOPIC_QUEUES
from congreve.records.message.message import RECONSUME_TIMES_MAX, one_more
from congreve.records.message.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRANSACTION_PREPARED,
)
from congreve.records.message.property_codec import encode_properties
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC, RETRY_PREFIX
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.headers import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
)

log = Log(__name__)

INNER_GROUP = "CLIENT_INNER_PRODUCER"
FIRST_RETRY_LEVEL = 3
DEAD_LETTER = -1
"""The delay level of a message that goes to the dead letter queue at once."""


class SendBack:
    """Asks the message's broker to deliver it again later; if that fails, sends a copy to the
    retry topic. (RocketMQ: MQClientAPIImpl.consumerSendMessageBack.)
    """

    def __init__(self, client: GroupClient, attempts: int) -> None:
        self._client = client
        self._attempts = attempts

    async def send(self, message: ReceivedMessage, delay_level: int) -> None:
        """Let the broker deliver a message again. Level 0 increases the delay with each attempt,
        -1 means the dead letter queue.

        Raises CongreveError when the copy fails too.
        """
        try:
            await self._ask_broker(message, delay_level)
        except CongreveError as error:
            log.warning("send back failed, sending a copy", message=message, error=error)
            await self.send_copy(message, one_more(message.reconsume_times))

    async def _ask_broker(self, message: ReceivedMessage, delay_level: int) -> None:
        client = self._client
        queue = wrap_queue(client.namespace, message.queue)
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=client.group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=wrap(client.namespace, message.topic),
            max_reconsume_times=self._attempts,
        )
        await client.routes.find(queue.topic)
        address = client.routes.address_to_read(queue.broker_name, 0)
        await client.demand(address, RequestCode.CONSUMER_SEND_MSG_BACK, header.fields())

    async def send_copy(self, message: ReceivedMessage, times: int) -> None:
        """Send a copy to any broker of the retry topic, which counts as retried so many times: the
        broker makes a dead letter of it when that is the maximum.

        Raises CongreveError when that fails.
        """
        client = self._client
        topic = RETRY_PREFIX + client.group
        route = await client.routes.find(topic, inherit=True)
        queue = random.choice(route.write_queues)
        original = dict(message.properties)
        original.pop(TRANSACTION_PREPARED, None)  # the transaction is committed already
        properties = original | {
            RETRY_TOPIC: wrap(client.namespace, message.topic),
            ORIGIN_MESSAGE_ID: message.properties.get(ORIGIN_MESSAGE_ID) or message.message_id,
            RECONSUME_TIME: str(times),
            MAX_RECONSUME_TIMES: str(self._attempts),
            DELAY: str(min(FIRST_RETRY_LEVEL + message.reconsume_times, RECONSUME_TIMES_MAX)),
        }
        header = SendMessageRequestHeaderV2(
            producer_group=INNER_GROUP,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=times,
            max_reconsume_times=self._attempts,
        )
        address = client.routes.address(queue.broker_name)
        await client.demand(address, RequestCode.SEND_MESSAGE_V2, header.fields(), message.body)
