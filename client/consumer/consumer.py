"""Pulls messages from chosen queues (RocketMQ: DefaultMQPullConsumer)."""

import time
from typing import Unpack

from congreve.client.checks import check_number, check_queue, check_seconds, check_topic
from congreve.client.consumer.group_client import ConsumerOptions, GroupClient
from congreve.client.errors import BrokerError
from congreve.client.message import MessageQueue, PullResult
from congreve.client.namespace import unwrap_queue, wrap, wrap_queue
from congreve.client.pull.process_queue import INT64_MAX
from congreve.client.pull.pulling import Pulled, PullRequest, read_answer
from congreve.client.subscription import Sql, subscribe
from congreve.client.transport.client_thread import SyncClient, blocking
from congreve.client.transport.options import check_options
from congreve.client.transport.route import MASTER_ID
from congreve.records.filter.kinds import ALL
from congreve.remoting.messages.bodies import ConsumerData
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

HOLD_CHECK_S = 5.0
"""Interval in seconds at which RocketMQ checks held pulls; its answer may be that late."""


class PullConsumer(GroupClient):
    """Pulls from chosen queues: ``async with PullConsumer("host:9876", group="g") as consumer``.

    It is not a member of its group and reads and writes the group's offsets only on request.
    `hooks` see each pull that finds messages. Other options are those of GroupClient.

    Every method raises RouteNotFoundError when no broker has the topic, BrokerError when the broker
    refuses the request, another ClientError or a RemotingError when the request fails otherwise.
    (RocketMQ: DefaultMQPullConsumer.)
    """

    def __init__(self, namesrv: str, *, group: str, **options: Unpack[ConsumerOptions]) -> None:
        check_options(self, options, ConsumerOptions)
        super().__init__(namesrv, group=group, **options)
        self._broker_ids: dict[MessageQueue, int] = {}
        self._announced: list[ConsumerData] = []

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""
        self.check_running()
        check_topic(topic)
        route = await self.routes.find(wrap(self.namespace, topic))
        return [unwrap_queue(self.namespace, queue) for queue in route.read_queues]

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        *,
        expression: str | Sql = ALL,
        wait_s: float = 0.0,
    ) -> PullResult:
        """Pull messages from `offset` on; the broker waits up to `wait_s` seconds for the first
        one.

        `expression` is ``*``, tags separated by ``||``, or Sql. Fewer messages than `max_count`,
        even none, do not mean the end of the queue: see PullResult.status and max_offset.
        """
        self.check_running()
        check_queue(queue)
        check_number("offset", offset, 0, INT64_MAX)
        check_number("max_count", max_count, 1)
        check_seconds("wait_s", wait_s, above_zero=False)
        queue = wrap_queue(self.namespace, queue)
        begin = time.monotonic()
        request = PullRequest(
            group=self.group,
            queue=queue,
            subscription=subscribe(queue.topic, expression),
            count=max_count,
            wait_s=wait_s,
            version_ms=int(time.time() * 1000),
            carries_subscription=True,
        )
        pulled = await self._pull(request, offset)
        messages = pulled.records.messages(queue) if pulled.records is not None else []
        self._note_received(messages, begin)
        return PullResult(
            status=pulled.status,
            next_offset=pulled.next_offset,
            min_offset=pulled.min_offset,
            max_offset=pulled.max_offset,
            messages=messages,
            suggested_broker_id=pulled.suggested_broker_id,
        )

    async def _pull(
        self, request: PullRequest, offset: int, commit_offset: int | None = None
    ) -> Pulled:
        queue = request.queue
        await self.routes.find(queue.topic)
        broker_id = self._broker_ids.get(queue, MASTER_ID)
        address = self.routes.address_to_read(queue.broker_name, broker_id)
        answer = await self.ask(
            address,
            RequestCode.PULL_MESSAGE,
            request.fields(offset, commit_offset),
            timeout_s=request.wait_s + HOLD_CHECK_S * (request.wait_s > 0) + self.timeout_s,
        )
        pulled = read_answer(answer, address, request.subscription, self.namespace)
        self._broker_ids[queue] = pulled.suggested_broker_id
        return pulled

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the oldest message in the queue."""
        queue = wrap_queue(self.namespace, queue)
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, _fields(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset that the next message will get."""
        queue = wrap_queue(self.namespace, queue)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, _fields(queue))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the message with the store time nearest to `timestamp_ms`."""
        queue = wrap_queue(self.namespace, queue)
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return await self._offset(queue, code, header.fields())

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset in this queue, None when it has none."""
        queue = wrap_queue(self.namespace, queue)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id
        )
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header.fields())
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit `offset` as the group's offset in this queue."""
        queue = wrap_queue(self.namespace, queue)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        address = await self._broker(queue)
        await self.demand(address, RequestCode.UPDATE_CONSUMER_OFFSET, header.fields())

    async def announce(self) -> None:
        """Register as a member of the group and unregister, at the brokers of all topics so far.

        Brokers then create the group's retry topic, without which mqadmin shows no
        consumerProgress.
        """
        self._announced = [
            ConsumerData(
                group_name=self.group,
                consume_type="CONSUME_ACTIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
            )
        ]
        try:
            await self.heartbeat()
            await self._unregister()
        finally:
            self._announced = []

    def _consumer_data(self) -> list[ConsumerData]:
        return self._announced

    async def _offset(self, queue: MessageQueue, code: int, fields: dict[str, str]) -> int:
        answer = await self.demand(await self._broker(queue), code, fields)
        return OffsetResponseHeader.read(answer).offset

    async def _broker(self, queue: MessageQueue) -> str:
        """The address of the queue's master, or of a slave while there is no master."""
        self.check_running()
        await self.routes.find(queue.topic)
        return self.routes.address_to_read(queue.broker_name, MASTER_ID)


def _fields(queue: MessageQueue) -> dict[str, str]:
    return QueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id).fields()


class SyncPullConsumer(SyncClient[PullConsumer]):
    """A PullConsumer for programs without an event loop.

    ``with SyncPullConsumer("host:9876", group="g") as consumer``; arguments, results and errors are
    those of PullConsumer. (RocketMQ: DefaultMQPullConsumer.)
    """

    def __init__(self, namesrv: str, *, group: str, **options: Unpack[ConsumerOptions]) -> None:
        check_options(self, options, ConsumerOptions)
        super().__init__("consumer", lambda: PullConsumer(namesrv, group=group, **options))

    queues = blocking(PullConsumer.queues)
    pull = blocking(PullConsumer.pull)
    min_offset = blocking(PullConsumer.min_offset)
    max_offset = blocking(PullConsumer.max_offset)
    offset_at = blocking(PullConsumer.offset_at)
    committed = blocking(PullConsumer.committed)
    commit = blocking(PullConsumer.commit)
