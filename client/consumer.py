"""Reads messages from chosen queues (RocketMQ: DefaultMQPullConsumer)."""

import time
from types import TracebackType
from typing import Any, Self

from congreve.client.checks import check_group, check_topic
from congreve.client.errors import BrokerError
from congreve.client.instance import ClientInstance
from congreve.client.loopthread import LoopThread
from congreve.client.message import MessageQueue, PullResult, PullStatus, received
from congreve.client.route import MASTER_ID
from congreve.client.subscription import ALL, matching
from congreve.records.record import decode_records
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.headers import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

DEFAULT_GROUP = "DEFAULT_CONSUMER"
"""The name that RocketMQ keeps for itself."""

PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4
"""Bits of a pull's sysFlag: wait for messages; the header says which (RocketMQ: PullSysFlag)."""


class PullConsumer(ClientInstance):
    """Reads where it is told to: ``async with PullConsumer("host:9876", group="g") as consumer``.

    It is no member of its group; it reads and writes the group's offsets when asked to. Every
    method raises RouteNotFoundError, BrokerError, another ClientError or a RemotingError.
    """

    def __init__(self, namesrv: str, *, group: str, timeout_s: float = 3.0) -> None:
        check_group(group, DEFAULT_GROUP)
        super().__init__(namesrv, timeout_s=timeout_s)
        self.group = group
        self._broker_ids: dict[MessageQueue, int] = {}

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Queues of a topic that may be read."""
        self.check_running()
        check_topic(topic)
        return list((await self.routes.find(topic)).read_queues)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        *,
        expression: str = ALL,
        wait_s: float = 0.0,
    ) -> PullResult:
        """Messages from `offset` on; the broker waits up to `wait_s` for the first one.

        `expression` is ``*`` or tags with ``||`` between. Fewer messages than `max_count`, even
        none, do not mean that the queue has ended: PullResult.status and max_offset tell.
        """
        self.check_running()
        await self.routes.find(queue.topic)
        broker_id = self._broker_ids.get(queue, MASTER_ID)
        address = self.routes.address_to_read(queue.broker_name, broker_id)
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_count,
            sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if wait_s > 0 else 0),
            commit_offset=0,
            suspend_timeout_millis=int(wait_s * 1000),
            sub_version=int(time.time() * 1000),
            subscription=expression,
            expression_type="TAG",
        )
        answer = await self.ask(
            address,
            RequestCode.PULL_MESSAGE,
            header.fields(),
            timeout_s=wait_s + self.timeout_s,
        )
        result = _pulled(answer, address, queue, expression)
        self._broker_ids[queue] = result.suggested_broker_id
        return result

    async def min_offset(self, queue: MessageQueue) -> int:
        """Offset of the first message that is still there."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, self._of(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Offset that the next message will get."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, self._of(queue))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the message that was stored next to a time."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return await self._offset(queue, code, header.fields())

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on in this queue, None where it has never been."""
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
        """Have the group go on at `offset` in this queue."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        address = await self._master(queue)
        await self.demand(address, RequestCode.UPDATE_CONSUMER_OFFSET, header.fields())

    def _of(self, queue: MessageQueue) -> dict[str, str]:
        return QueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id).fields()

    async def _offset(self, queue: MessageQueue, code: int, fields: dict[str, str]) -> int:
        answer = await self.demand(await self._master(queue), code, fields)
        return OffsetResponseHeader.read(answer).offset

    async def _master(self, queue: MessageQueue) -> str:
        self.check_running()
        await self.routes.find(queue.topic)
        return self.routes.address(queue.broker_name)


def _pulled(
    answer: RemotingCommand, address: str, queue: MessageQueue, expression: str
) -> PullResult:
    try:
        status = PullStatus(answer.code)
    except ValueError as error:
        raise BrokerError(answer.code, answer.remark, address) from error
    header = PullMessageResponseHeader.read(answer)
    records = decode_records(answer.body) if status == PullStatus.FOUND else []
    return PullResult(
        status=status,
        next_offset=header.next_begin_offset,
        min_offset=header.min_offset,
        max_offset=header.max_offset,
        messages=matching([received(record, queue) for record in records], expression),
        suggested_broker_id=header.suggest_which_broker_id,
    )


class SyncPullConsumer:
    """A PullConsumer for programs without an event loop; it has one in a thread of its own.

    ``with SyncPullConsumer("host:9876", group="g") as consumer``; arguments, results and errors are
    PullConsumer's.
    """

    def __init__(self, namesrv: str, **settings: Any) -> None:
        self._thread = LoopThread("consumer", lambda: PullConsumer(namesrv, **settings))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def queues(self, topic: str) -> list[MessageQueue]:
        """See PullConsumer.queues()."""
        return self._thread.run(self._thread.client.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        *,
        expression: str = ALL,
        wait_s: float = 0.0,
    ) -> PullResult:
        """See PullConsumer.pull()."""
        pull = self._thread.client.pull
        return self._thread.run(
            pull(queue, offset, max_count, expression=expression, wait_s=wait_s)
        )

    def min_offset(self, queue: MessageQueue) -> int:
        """See PullConsumer.min_offset()."""
        return self._thread.run(self._thread.client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """See PullConsumer.max_offset()."""
        return self._thread.run(self._thread.client.max_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """See PullConsumer.offset_at()."""
        return self._thread.run(self._thread.client.offset_at(queue, timestamp_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """See PullConsumer.committed()."""
        return self._thread.run(self._thread.client.committed(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """See PullConsumer.commit()."""
        self._thread.run(self._thread.client.commit(queue, offset))
