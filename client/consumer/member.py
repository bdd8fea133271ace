"""A member of a consumer group: assignment of queues, pulls, offsets (RocketMQ: RebalanceImpl,
RebalancePushImpl, PullMessageService)."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Unpack

from congreve.base.errors import CongreveError
from congreve.client.checks import check_type
from congreve.client.consumer.consume_stats import ConsumerMetrics, ConsumeStats
from congreve.client.consumer.consumer import PullConsumer
from congreve.client.consumer.filter_check import check_filters
from congreve.client.consumer.group_client import ConsumerOptions
from congreve.client.consumer.group_members import group_members
from congreve.client.consumer.offset_store import LocalOffsetStore, OffsetStore, RemoteOffsetStore
from congreve.client.consumer.queue_locks import QueueLocks
from congreve.client.consumer.rebalance import Strategy, averagely, share_of
from congreve.client.consumer.running_info import RunningInfo
from congreve.client.errors import (
    BrokerError,
    RouteNotFoundError,
)
from congreve.client.logs import Log
from congreve.client.message import MessageQueue, PullStatus, ReceivedMessage
from congreve.client.namespace import unwrap_queue, wrap
from congreve.client.pull.process_queue import ProcessQueue
from congreve.client.pull.pulling import HEARTBEAT_MISSED, Pulled, PullRequest
from congreve.client.received import PulledRecords
from congreve.client.settings import ConsumeFrom, ConsumerSettings, MessageModel, check_member
from congreve.client.subscription import Sql, subscribe
from congreve.client.transport.options import check_options
from congreve.client.transport.route import TopicRoute
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.bodies import ConsumerData
from congreve.remoting.transport.dispatcher import Handler

log = Log(__name__)

HALF_AN_HOUR_MS = 30 * 60 * 1000
LOCAL_OFFSETS = Path("~/.rocketmq_offsets")
RELEASE_S = 1.0
"""How long the release of a queue waits for its running listener, in seconds; after that the next
rebalance tries again (RocketMQ: lockConsume of ProcessQueue)."""

AFTER_HEARTBEAT_S = 0.1
"""Delay before the next pull from a broker that has just received this client's heartbeat."""


class MemberOptions(ConsumerOptions, total=False):
    """Options of every member of a group; see GroupMember (RocketMQ: fields of
    DefaultMQPushConsumer)."""

    model: MessageModel
    strategy: Strategy
    consume_from: ConsumeFrom
    consume_timestamp_ms: int | None
    settings: ConsumerSettings | None
    orderly: bool
    instance_name: str
    local_offsets: Path
    metrics: ConsumerMetrics | None


class GroupMember(PullConsumer):
    """Base class of push and lite pull consumers. `topics` maps each topic to ``*``, tags separated
    by ``||``, or Sql.

    `consume_timestamp_ms` applies to ConsumeFrom.TIMESTAMP, half an hour ago by default.
    `instance_name` gives a broadcasting client the same identity after a restart. Other options
    are those of PullConsumer. (RocketMQ: RebalanceImpl.)
    """

    consume_type = "CONSUME_PASSIVELY"
    is_lite = False

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql],
        model: MessageModel = MessageModel.CLUSTERING,
        strategy: Strategy = averagely,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        settings: ConsumerSettings | None = None,
        orderly: bool = False,
        instance_name: str = "DEFAULT",
        local_offsets: Path = LOCAL_OFFSETS,
        metrics: ConsumerMetrics | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        check_options(self, options, MemberOptions)
        check_member(model, consume_from, consume_timestamp_ms, strategy, settings, topics)
        check_type("orderly", orderly, bool)
        self._running_info = RunningInfo(self)
        self.stats = ConsumeStats(metrics)
        super().__init__(namesrv, group=group, **options)
        group = self.group
        self.settings = settings or ConsumerSettings()
        self.model = model
        self.orderly = orderly
        self.consume_from = consume_from
        self.consume_timestamp_ms = consume_timestamp_ms
        self.strategy = strategy
        names = {wrap(self.namespace, topic): wanted for topic, wanted in topics.items()}
        self.subscriptions = {topic: subscribe(topic, wanted) for topic, wanted in names.items()}
        self.offset_store: OffsetStore
        if model is MessageModel.BROADCASTING:
            self.client_id = f"{self.address}@{instance_name}"
            self.offset_store = LocalOffsetStore(local_offsets, self.client_id, group)
        else:
            self.subscriptions[RETRY_PREFIX + group] = subscribe(RETRY_PREFIX + group)
            self.offset_store = RemoteOffsetStore(self.committed, self.commit)
        self.version_ms = self._known_version_ms = int(time.time() * 1000)
        self.process_queues: dict[MessageQueue, ProcessQueue] = {}
        self.locks = QueueLocks(self)
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._registered: set[str] = set()
        self._rebalance_wanted = asyncio.Event()
        self._balancing = asyncio.Lock()

    async def start(self) -> None:
        """Join the group; its topics may be created later. Raises NoNameServerError when no name
        server answers, OffsetFileError for a broadcasting member whose offsets cannot be read.

        stop() ends all pulls, commits the consumed offsets, and leaves the group.
        """
        self.offset_store.open()
        await super().start()
        try:
            await check_filters(self, self.subscriptions.values(), self.version_ms)
            await self.rebalance()
        except BaseException:
            await self.stop()
            raise
        self._begin_task("the balance of queues", self._keep_balance)
        self._every(self.settings.commit_s, self.commit_all)
        if self.orderly and self.model is MessageModel.CLUSTERING:
            self._every(self.settings.lock_s, self._renew_locks)

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        return [unwrap_queue(self.namespace, queue) for queue in sorted(self.process_queues)]

    # --- assignment

    async def _keep_balance(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.rebalance_s):
                    await self._rebalance_wanted.wait()
            self._rebalance_wanted.clear()
            try:
                await self.rebalance()
            except CongreveError as error:
                log.warning("rebalance failed", group=self.group, error=error)

    async def rebalance(self) -> None:
        """Acquire and release queues to match this member's share; topics fail separately."""
        async with self._balancing:
            routes = await self._find_routes()
            brokers = self.routes.addresses(masters_only=False)
            if brokers != self._registered:
                await self.heartbeat()
                self._registered = brokers
            changed = False
            for route in routes:
                try:
                    changed = await self._rebalance_topic(route) or changed
                except CongreveError as error:
                    log.warning(
                        "rebalance failed", group=self.group, topic=route.topic, error=error
                    )
            if changed:
                self._share_limits()
                self.version_ms = max(int(time.time() * 1000), self.version_ms + 1)
                await self.heartbeat()
                # Brokers refuse a pull whose subscription version no heartbeat has announced.
                self._known_version_ms = self.version_ms

    def _share_limits(self) -> None:
        limits = self.settings.limits.shared_by(len(self.process_queues))
        for process_queue in self.process_queues.values():
            process_queue.limit(limits)

    async def _find_routes(self) -> list[TopicRoute]:
        routes = []
        for topic in self.subscriptions:
            try:
                routes.append(await self.routes.find(topic))
            except RouteNotFoundError:
                # The brokers create the retry topic with the group.
                write = log.debug if topic.startswith(RETRY_PREFIX) else log.warning
                write("topic does not exist yet", group=self.group, topic=topic)
        return routes

    async def _rebalance_topic(self, route: TopicRoute) -> bool:
        if self.model is MessageModel.BROADCASTING:
            share = set(route.read_queues)
        else:
            members = await group_members(self, self.group, route)
            share = set(share_of(self.strategy, self.client_id, route.read_queues, members))
        held = {queue for queue in self.process_queues if queue.topic == route.topic}
        silent = {queue for queue in held & share if self._is_silent(queue)}
        lost = [queue for queue in sorted(held - share | silent) if await self._release(queue)]
        wanted = sorted(share - held | silent.intersection(lost))
        taken = await asyncio.gather(*(self._try_to_acquire(queue) for queue in wanted))
        gained = [queue for queue, ok in zip(wanted, taken, strict=True) if ok]
        if lost or gained:
            log.info("balanced", group=self.group, lost=lost, gained=gained)
        return bool(lost or gained)

    def _is_silent(self, queue: MessageQueue) -> bool:
        process_queue = self.process_queues[queue]
        return process_queue.is_silent and not len(process_queue)

    async def _try_to_acquire(self, queue: MessageQueue) -> bool:
        """Acquire a queue; a failure does not affect the other queues."""
        try:
            return await self._acquire(queue)
        except CongreveError as error:
            log.warning("queue not acquired", group=self.group, queue=queue, error=error)
            return False

    async def _acquire(self, queue: MessageQueue) -> bool:
        """Start to read a queue; returns False while another member has its lock."""
        orderly = self.orderly and self.model is MessageModel.CLUSTERING
        if orderly and queue not in await self.locks.lock([queue]):
            return False
        process_queue = ProcessQueue(queue, await self._start_offset(queue), self.settings.limits)
        if orderly:
            process_queue.locked_at = time.monotonic()
        self._begin(process_queue)
        return True

    def _begin(self, process_queue: ProcessQueue) -> None:
        self.process_queues[process_queue.queue] = process_queue
        pulls = asyncio.create_task(self._pull_queue(process_queue))
        self._pulls[process_queue.queue] = pulls
        self._acquired(process_queue)

    async def _start_offset(self, queue: MessageQueue) -> int:
        known = await self.offset_store.read(queue)
        if known is not None:
            return known
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if self.consume_from is ConsumeFrom.TIMESTAMP:
            if is_retry:
                return await self.max_offset(queue)
            since = self.consume_timestamp_ms
            return await self.offset_at(queue, since or int(time.time() * 1000) - HALF_AN_HOUR_MS)
        # Messages sent back before this group first read its retry topic must not be skipped.
        if self.consume_from is ConsumeFrom.FIRST_OFFSET or is_retry:
            return 0
        return await self.max_offset(queue)

    async def _release(self, queue: MessageQueue) -> bool:
        """Release a queue; returns False while an orderly listener works on it."""
        process_queue = self.process_queues[queue]
        if self.orderly:
            try:
                async with asyncio.timeout(RELEASE_S):
                    await process_queue.lock.acquire()
            except TimeoutError:
                return False
        await self._drop(process_queue)
        if self._commits_at_end():
            await self._commit([process_queue])
        if self.orderly:
            process_queue.lock.release()
            await self.locks.unlock([queue])
        return True

    async def _drop(self, process_queue: ProcessQueue) -> None:
        del self.process_queues[process_queue.queue]
        process_queue.dropped = True
        self._released(process_queue)
        task = self._pulls.pop(process_queue.queue)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets, as mqadmin resetOffsetByTime requests."""
        async with self._balancing:
            for queue, offset in offsets.items():
                process_queue = self.process_queues.get(queue)
                if process_queue is None:
                    continue
                async with process_queue.lock:
                    await self._drop(process_queue)
                await self.offset_store.write({queue: offset})
        self._rebalance_wanted.set()

    async def _renew_locks(self) -> None:
        await self.locks.renew(list(self.process_queues.values()))

    # --- pulls

    async def _pull_queue(self, process_queue: ProcessQueue) -> None:
        settings, queue = self.settings, process_queue.queue
        request = PullRequest(
            group=self.group,
            queue=queue,
            subscription=self.subscriptions[queue.topic],
            count=settings.pull_count,
            wait_s=settings.pull_wait_s,
            carries_subscription=settings.carry_subscription,
            lite=self.is_lite,
        )
        while True:
            try:
                await self._pull_once(process_queue, request)
            except Exception:
                log.exception("pull failed", group=self.group, queue=queue)
                await asyncio.sleep(settings.pause_after_error_s)

    async def _pull_once(self, process_queue: ProcessQueue, request: PullRequest) -> None:
        await process_queue.wait_until_not_full()
        request.version_ms = self._known_version_ms
        began = time.perf_counter()
        try:
            pulled = await self._pull(request, process_queue.next_offset)
        except CongreveError as error:
            await self._after_failure(request.queue, error)
            return
        count = 0 if pulled.records is None else len(pulled.records)
        self.stats.pulled(request.queue.topic, count, time.perf_counter() - began)
        self._take(process_queue, pulled)
        if self.settings.pull_interval_s:
            await asyncio.sleep(self.settings.pull_interval_s)

    def _take(self, process_queue: ProcessQueue, pulled: Pulled) -> None:
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            offsets = {"offset": process_queue.next_offset, "going_on_at": pulled.next_offset}
            log.warning("illegal offset", group=self.group, queue=process_queue.queue, **offsets)
        process_queue.take(pulled.records, pulled.next_offset)
        if pulled.records is not None and len(pulled.records):
            self._deliver(process_queue, pulled.records)

    async def _after_failure(self, queue: MessageQueue, error: CongreveError) -> None:
        log.warning("pull failed", group=self.group, queue=queue, error=error)
        pause_s = self.settings.pause_after_error_s
        if isinstance(error, BrokerError) and error.code in HEARTBEAT_MISSED:
            # A restarted broker has no clients until they send a heartbeat.
            await self.heartbeat()
            pause_s = min(pause_s, AFTER_HEARTBEAT_S)
        await asyncio.sleep(pause_s)

    def _deliver(self, process_queue: ProcessQueue, records: PulledRecords) -> None:
        """Hook for subclasses: receives the pulled messages."""
        raise NotImplementedError

    async def consume_directly(self, message: ReceivedMessage) -> str | None:
        """Consume one message that an administrator chose; returns None, or the error's text."""
        raise NotImplementedError

    def _acquired(self, process_queue: ProcessQueue) -> None:
        """Hook for subclasses: this member now reads the queue."""

    def _released(self, process_queue: ProcessQueue) -> None:
        """Hook for subclasses: this member no longer reads the queue."""

    # --- offsets

    async def commit_all(self) -> None:
        """Commit the consumed offsets; a failed commit is repeated at the next interval."""
        await self._commit(list(self.process_queues.values()))

    def _commits_at_end(self) -> bool:
        """Whether the offset of a released queue is committed first."""
        return True

    async def _commit(self, process_queues: Iterable[ProcessQueue]) -> None:
        # Unchanged offsets are committed too, as by the Java client: brokers may have lost them.
        if offsets := {each.queue: each.commit_offset for each in process_queues}:
            await self.offset_store.write(offsets)

    async def _leave(self) -> None:
        process_queues = list(self.process_queues.values())
        for process_queue in process_queues:
            await self._drop(process_queue)
        if self._commits_at_end():
            await self._commit(process_queues)
        if self.orderly and self.model is MessageModel.CLUSTERING:
            await self.locks.unlock([each.queue for each in process_queues])

    # --- requests of brokers, heartbeat

    def _handlers(self) -> Mapping[int, Handler]:
        return self._running_info.handlers()

    def balance_soon(self) -> None:
        """Look at once whether other queues are this member's now."""
        self._rebalance_wanted.set()

    def _consumer_data(self) -> list[ConsumerData]:
        return [
            ConsumerData(
                group_name=self.group,
                consume_type=self.consume_type,
                message_model=self.model.value,
                consume_from_where=self.consume_from.value,
                subscription_data_set=[
                    each.data(self.version_ms) for each in self.subscriptions.values()
                ],
            )
        ]
