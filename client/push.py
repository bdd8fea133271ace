"""Reads as a member of a group (RocketMQ: DefaultMQPushConsumer, RebalancePushImpl)."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum

from congreve.client.checks import check_topic
from congreve.client.consumer import PullConsumer
from congreve.client.errors import ClientStateError, RouteNotFoundError
from congreve.client.message import (
    RETRY_PREFIX,
    MessageQueue,
    PullStatus,
    ReceivedMessage,
)
from congreve.client.processqueue import ProcessQueue
from congreve.client.rebalance import allocate_averagely
from congreve.client.route import TopicRoute
from congreve.client.subscription import ALL, subscription
from congreve.errors import CongreveError
from congreve.remoting.bodies import ConsumerData, GetConsumerListByGroupResponseBody
from congreve.remoting.codes import RequestCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader,
)

logger = logging.getLogger(__name__)

REBALANCE_S = 20.0
COMMIT_S = 5.0
PULL_WAIT_S = 15.0
PULL_COUNT = 32
PAUSE_AFTER_ERROR_S = 1.0
MAX_RECONSUME_TIMES = 16


class ConsumeFrom(StrEnum):
    """Where a group begins in a queue that it has never read (RocketMQ: ConsumeFromWhere)."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"


class PushConsumer(PullConsumer):
    """A member of a consumer group, which shares the queues of its topics among its members::

        async with PushConsumer("host:9876", group="g", topics={"T": "*"}) as consumer:
            async for message in consumer:
                ...

    `topics` has for each topic ``*`` or tags with ``||`` between; all members must have the same.
    A message is done with when the next one is asked for, or by done(); one that is not comes
    again, to this member or another. Several tasks may iterate.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str],
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        timeout_s: float = 3.0,
    ) -> None:
        super().__init__(namesrv, group=group, timeout_s=timeout_s)
        if not topics:
            raise ClientStateError(f"consumer of group {group} has no topics to read")
        for topic in topics:
            check_topic(topic)
        self.consume_from = consume_from
        self._topics = {**topics, RETRY_PREFIX + group: ALL}
        self._version_ms = int(time.time() * 1000)
        self._queues: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._ready: asyncio.Queue[tuple[ProcessQueue, ReceivedMessage] | None] = asyncio.Queue()
        self._greeted: set[str] = set()
        self._rebalance_wanted = asyncio.Event()

    async def start(self) -> None:
        """Join the group. Raises NoNameServerError; a topic may come into being later.

        stop() commits what was done with, leaves the group and ends the iterations.
        """
        await super().start()
        try:
            await self._rebalance()
        except BaseException:
            await self.stop()
            raise
        self._tasks.append(asyncio.create_task(self._keep_balance()))
        self._every(COMMIT_S, self._commit_all)

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        return sorted(self._queues)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        while True:
            ready = await self._ready.get()
            if ready is None:
                self._ready.put_nowait(None)
                return
            process_queue, message = ready
            if not process_queue.dropped:
                yield message
                self.done(message)

    def done(self, message: ReceivedMessage) -> None:
        """The message needs no more work; a second time does nothing."""
        process_queue = self._queues.get(message.queue)
        if process_queue is not None:
            process_queue.done(message.queue_offset)

    async def send_back(self, message: ReceivedMessage, *, delay_level: int = 0) -> None:
        """Have the group get a message again later, and be done with it for now.

        Level 0 waits longer each time; after 16 times the message goes to the dead letters.
        """
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self.group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=MAX_RECONSUME_TIMES,
        )
        address = await self._master(message.queue)
        await self.demand(address, RequestCode.CONSUMER_SEND_MSG_BACK, header.fields())
        self.done(message)

    # ---- which queues --------------------------------------------------------------------------

    async def _keep_balance(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REBALANCE_S):
                    await self._rebalance_wanted.wait()
            except TimeoutError:
                pass
            self._rebalance_wanted.clear()
            try:
                await self._rebalance()
            except CongreveError as error:
                logger.warning("group %s not balanced: %s", self.group, error)

    async def _rebalance(self) -> None:
        """Take and leave queues until they are this member's share; one topic fails by itself."""
        routes = await self._find_routes()
        brokers = self.routes.addresses(masters_only=False)
        if brokers != self._greeted:
            await self.heartbeat()
            self._greeted = brokers
        changed = False
        for route in routes:
            try:
                changed = await self._rebalance_topic(route) or changed
            except CongreveError as error:
                logger.warning("group %s: %s not balanced: %s", self.group, route.topic, error)
        if changed:
            self._version_ms = int(time.time() * 1000)
            await self.heartbeat()

    async def _find_routes(self) -> list[TopicRoute]:
        routes = []
        for topic in self._topics:
            try:
                routes.append(await self.routes.find(topic))
            except RouteNotFoundError:
                # A retry topic comes into being with the group.
                level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
                logger.log(level, "group %s: topic %s is not there yet", self.group, topic)
        return routes

    async def _rebalance_topic(self, route: TopicRoute) -> bool:
        members = await self._members(route)
        share = set(allocate_averagely(self.client_id, route.read_queues, members))
        held = {queue for queue in self._queues if queue.topic == route.topic}
        lost = sorted(held - share)
        for queue in lost:
            await self._drop(queue)
        gained = sorted(share - held)
        for queue in gained:
            offset = await self._start_offset(queue)
            self._queues[queue] = process_queue = ProcessQueue(queue, offset)
            self._pulls[queue] = asyncio.create_task(self._pull_queue(process_queue))
        if lost or gained:
            logger.info("group %s: %s lost, %s gained", self.group, lost, gained)
        return bool(lost or gained)

    async def _members(self, route: TopicRoute) -> list[str]:
        fields = GetConsumerListByGroupRequestHeader(consumer_group=self.group).fields()
        broker_name = min(route.brokers)
        address = self.routes.address_to_read(broker_name, 0)
        answer = await self.demand(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        return GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list

    async def _start_offset(self, queue: MessageQueue) -> int:
        committed = await self.committed(queue)
        if committed is not None:
            return committed
        # What was sent back before this group ever read its retry topic must not be passed over.
        from_first = self.consume_from is ConsumeFrom.FIRST_OFFSET
        if from_first or queue.topic.startswith(RETRY_PREFIX):
            return 0
        return await self.max_offset(queue)

    async def _drop(self, queue: MessageQueue) -> None:
        process_queue = self._queues.pop(queue)
        process_queue.dropped = True
        task = self._pulls.pop(queue)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._commit(process_queue)

    # ---- messages and offsets ------------------------------------------------------------------

    async def _pull_queue(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        while True:
            await process_queue.has_room()
            try:
                result = await self.pull(
                    queue,
                    process_queue.next_offset,
                    PULL_COUNT,
                    expression=self._topics[queue.topic],
                    wait_s=PULL_WAIT_S,
                )
            except CongreveError as error:
                logger.warning("group %s: pull of %s: %s", self.group, queue, error)
                await asyncio.sleep(PAUSE_AFTER_ERROR_S)
                continue
            if result.status == PullStatus.OFFSET_ILLEGAL:
                logger.warning(
                    "group %s: %s has no offset %d, going on at %d",
                    *(self.group, queue, process_queue.next_offset, result.next_offset),
                )
            process_queue.take(result.messages, result.next_offset)
            for message in result.messages:
                self._ready.put_nowait((process_queue, message))

    async def _commit_all(self) -> None:
        for process_queue in list(self._queues.values()):
            await self._commit(process_queue)

    async def _commit(self, process_queue: ProcessQueue) -> None:
        """Commit where it changed; a failure is logged, the next time comes soon."""
        offset = process_queue.commit_offset
        if offset == process_queue.committed:
            return
        try:
            await self.commit(process_queue.queue, offset)
        except CongreveError as error:
            logger.warning("group %s: offset not committed: %s", self.group, error)
            return
        process_queue.committed = offset

    async def _leave(self) -> None:
        for queue in list(self._queues):
            await self._drop(queue)
        self._ready.put_nowait(None)

    # ---- the group as brokers see it -----------------------------------------------------------

    def _handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed}

    def _ids_changed(self, request: RemotingCommand, connection: Connection) -> None:
        self._rebalance_wanted.set()

    def _consumer_data(self) -> list[ConsumerData]:
        subscriptions = [
            subscription(topic, expression, self._version_ms)
            for topic, expression in self._topics.items()
        ]
        return [
            ConsumerData(
                group_name=self.group,
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where=self.consume_from.value,
                subscription_data_set=subscriptions,
            )
        ]
