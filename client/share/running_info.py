"""What a share consumer says about itself (RocketMQ 5: ConsumerRunningInfo)."""

import time
from collections import Counter
from collections.abc import Mapping

from congreve.client.consumer.running_info import VERSION_NAME
from congreve.client.message import MessageQueue
from congreve.client.receipt import Receipt
from congreve.client.share.in_flight import InFlight
from congreve.client.share.member import ShareMember
from congreve.client.share.popping import ALL_QUEUES
from congreve.remoting.messages.admin_bodies import ConsumerRunningInfo, PopProcessQueueInfo


class ShareRunningInfo:
    """The running info of one share consumer; `popped_ms` is when it last popped
    each queue, in ms since 1970.

    (RocketMQ 5: DefaultMQPushConsumerImpl.consumerRunningInfo.)
    """

    def __init__(
        self, member: ShareMember, in_flight: InFlight, popped_ms: Mapping[MessageQueue, int]
    ) -> None:
        self._member = member
        self._in_flight = in_flight
        self._popped_ms = popped_ms
        self._started_ms = int(time.time() * 1000)

    def collect(self) -> ConsumerRunningInfo:
        """The state that mqadmin consumerStatus shows."""
        member = self._member
        return ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(member.name_servers.addresses),
                "PROP_CONSUME_TYPE": member.consume_type,
                "PROP_CLIENT_VERSION": VERSION_NAME,
                "PROP_THREADPOOL_CORE_SIZE": str(member.settings.concurrency),
                "PROP_CONSUMEORDERLY": "true" if member.orderly else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "consumerGroup": member.group,
                "messageModel": member.model,
                "consumeFromWhere": member.consume_from.value,
            },
            subscription_set=[
                each.data(member.version_ms) for each in member.subscriptions.values()
            ],
            mq_pop_table=self._queues(),
            status_table={topic: member.stats.status(topic) for topic in member.subscriptions},
        )

    def _queues(self) -> dict[MessageQueue, PopProcessQueueInfo]:
        counts = Counter(
            place for receipt in self._in_flight.receipts for place in _places(receipt)
        )
        return {
            queue: PopProcessQueueInfo(
                wait_ack_count=counts[queue], last_pop_timestamp=self._popped_ms.get(queue, 0)
            )
            for queue in self._member.queues
        }


def _places(receipt: Receipt) -> tuple[MessageQueue, MessageQueue]:
    """The queues for which a message counts: its own, and all of its broker."""
    topic, broker_name = receipt.topic, receipt.handle.broker_name
    own = MessageQueue(topic, broker_name, receipt.handle.queue_id)
    return own, MessageQueue(topic, broker_name, ALL_QUEUES)
