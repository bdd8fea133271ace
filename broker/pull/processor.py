"""Pulls, with every check (RocketMQ: PullMessageProcessor)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING

from congreve.base.clock import Clock
from congreve.base.errors import CongreveError
from congreve.base.table_limit import TableFullError
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.filters import NotCompiledError
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.offsets import Commit
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.pull.checks import PullChecks
from congreve.broker.pull.disk_wait import DiskWait
from congreve.broker.pull.fast import PullPath
from congreve.broker.pull.lanes.polling import WATCHER_OF_LOOP
from congreve.broker.pull.lanes.table import LanePullTable
from congreve.broker.pull.long_polling import LongPolling
from congreve.broker.pull.offset_moved import OffsetMovedEvents
from congreve.broker.pull.pull_quota import FLAG_COMMIT_OFFSET, FLAG_SUSPEND, PullQuota
from congreve.broker.pull.response_codes import pull_code
from congreve.broker.pull.subscriptions import FLAG_SUBSCRIPTION, PullSubscriptions
from congreve.broker.pull.suspended_pull import PullWaker, SuspendedPull
from congreve.broker.pull.validated_pull import ValidatedPull, ValidatedPulls
from congreve.broker.quotas.send_quota import BUSY_REMARK
from congreve.engine.log.watch import watch
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.read.gather import TagFilter
from congreve.engine.read.reader import GetResult, GetStatus
from congreve.engine.store import MessageStore
from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageRequestHeader, PullMessageResponseHeader
from congreve.remoting.messages.signature import SIGNATURE
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

if TYPE_CHECKING:
    from congreve.broker.pull.archived_pulls import ArchivedMessages, ArchivedPulls


class PullMessageProcessor:
    """PULL_MESSAGE and LITE_PULL_MESSAGE; a pull without messages may wait.

    RocketMQ: PullMessageProcessor.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        consumers: ConsumerManager,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        quota: PullQuota,
        answered: Callable[[SuspendedPull, int], None] = lambda *_: None,
        archived: ArchivedPulls | None = None,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._consumers = consumers
        self._subscriptions = PullSubscriptions(config, consumers, metadata.filters)
        self._store = store
        self._stats = stats
        self._metadata = metadata
        self.quota = quota
        self.archived = archived
        self._checks = PullChecks(config, metadata, self._subscriptions)
        self._offset_moved = OffsetMovedEvents(config, store, clock)
        self.validated_pulls = ValidatedPulls(
            config=config,
            offsets=metadata.offsets,
            groups=metadata.groups.table,
            topics=metadata.topics.table,
            consumers=consumers.groups,
        )
        self.disk_wait = DiskWait(
            fetch=store.cold_reads.fetch,
            answer=self._answer_cold,
            dismiss=self._dismiss,
            delay_s=quota.read_delay_s,
        )
        self.repair_wait = DiskWait(
            fetch=self._start_repair, answer=self._answer_cold, dismiss=self._dismiss
        )
        self.waker = PullWaker(
            validated_pulls=self.validated_pulls,
            store=store,
            resume=self._resume,
            wait_for_disk=self.disk_wait.suspend,
            wait_for_repair=self.repair_wait.suspend,
            charge=quota.charge_held,
            answered=answered,
        )
        self.long_polling = LongPolling(
            watch=partial(watch, store.log.lock, watcher=WATCHER_OF_LOOP),
            hides=store.log.is_hiding,
            wake=self.waker.wake,
            resume=self._resume,
            dismiss=self._dismiss,
        )
        self.path = PullPath(store, self)
        metadata.topics.listen(self.validated_pulls.note_change)
        metadata.groups.listen(self.validated_pulls.note_change)
        consumers.listen(self.validated_pulls.note_change)

    def follow_lane(self, known: LanePullTable) -> None:
        """Commit the offsets of pulls that a lane served."""

        def commits() -> Iterator[Commit]:
            for commit in known.take_commits():
                group, topic, _, _ = commit
                if group in self._groups.table and topic in self._topics.table:
                    yield commit

        self._metadata.offsets.follow(commits)

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Execute a pull for the first time; None when it waits.

        Its body means nothing, and no waiting pull keeps it. A signature may be verified again.
        """
        if SIGNATURE not in request.ext_fields:
            request.body = b""
        if self.quota.limits(request, connection):
            return None
        header = PullMessageRequestHeader.read(request)
        try:
            self._checks.check(header, connection)
            missing = self._metadata.missing(group=header.consumer_group)
        except NotCompiledError as filtered:
            missing = self._subscriptions.compile(filtered)
        if missing is None:
            return self._execute(request, connection)
        return self._wait_and_pull(missing, request, connection)

    async def _wait_and_pull(
        self, missing: Awaitable[object] | None, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | None:
        """Answer when the filter is compiled, and the group that the pull created is on disk.

        The pull is validated then, and may wait for the disk.
        """
        header = PullMessageRequestHeader.read(request)
        while missing is not None:
            await missing
            try:
                group, wanted = self._checks.check(header, connection)
                missing = self._metadata.missing(group=header.consumer_group)
            except NotCompiledError as filtered:  # the group has another filter now
                missing = self._subscriptions.compile(filtered)
        held = _held(request, header, connection, self._validated(header, group, wanted))
        if request.is_oneway or self._is_archived(header) or not self.waker.wake(held):
            answer = self._execute(request, connection)
            return await answer if isawaitable(answer) else answer
        self._commit(header)
        return None

    def _execute(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        header = PullMessageRequestHeader.read(request)
        group, wanted = self._checks.check(header, connection)
        first = self._beginning(header)
        if first is not None:
            return self._begin_again(request, header, first)
        found = self._get(header, wanted, repair=False)
        if self.archived is not None and self._is_archived(header):
            answered = partial(self._answer_archived, request, connection, header, group)
            return self.archived.serve(header, wanted, found, answered)
        if found.status is GetStatus.DAMAGED:
            held = _held(request, header, connection, self._validated(header, group, wanted))
            if self.waker.repair(held, found.next_offset) or request.is_oneway:
                self._commit(header)
                return None
            found = self._get(header, wanted)
        code = pull_code(found.status, header.queue_offset)
        may_wait = header.sys_flag & FLAG_SUSPEND and not request.is_oneway
        if code is ResponseCode.PULL_NOT_FOUND and may_wait:
            held = _held(request, header, connection, self._validated(header, group, wanted))
            if not self.quota.holds(held, counts=True):
                raise RefusedError(ResponseCode.FLOW_CONTROL, BUSY_REMARK)
            if self._suspend(held, header.suspend_timeout_millis, found.max_offset):
                self._commit(header)
                return None
        answer = self._answer(request, connection, header, group, found, code)
        self._commit(header)
        return answer

    def _commit(self, header: PullMessageRequestHeader) -> None:
        if header.sys_flag & FLAG_COMMIT_OFFSET and not self._config.is_slave:
            self._metadata.offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )

    def validate(self, frame: bytes, connection: Connection) -> ValidatedPull | None:
        """The validated pull of this request, for compiled code; None: pull() must answer."""
        try:
            header = PullMessageRequestHeader.read(RemotingCommand.decode(frame))
            group, wanted = self._checks.check(header, connection)
        except (RefusedError, TableFullError, HeaderError, NotCompiledError):
            return None
        if not self._groups.is_saved(header.consumer_group):
            return None
        if self._beginning(header) is not None:
            return None
        return self._validated(header, group, wanted)

    def _validated(
        self,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        wanted: MessageFilter,
    ) -> ValidatedPull:
        online = self._consumers.groups.get(group.group_name)
        registered = not header.sys_flag & FLAG_SUBSCRIPTION
        return ValidatedPull(
            group=group,
            topic=self._topics.table[header.topic],
            subscription=(
                self._consumers.find_subscription(group.group_name, header.topic)
                if registered
                else None
            ),
            message_model=online.message_model if online and registered else "",
            queue=self._store.queues.get(header.topic, header.queue_id),
            tags=None if wanted.tag_codes is None else TagFilter(wanted.tag_codes),
            records=wanted.records,
            counter=self._stats.pull_counter(group.group_name, header.topic),
        )

    def _resume(self, held: SuspendedPull) -> None:
        """Execute a held pull again and answer it with any result."""
        request = RemotingCommand.decode(held.frame)
        try:
            header = PullMessageRequestHeader.read(request)
            group, wanted = self._checks.check(header, held.connection)
            first = self._beginning(header)
            if first is not None:
                self.waker.answer(held, self._begin_again(request, header, first))
                return
            found = self._get(header, wanted, repair=False)
            if found.status is GetStatus.DAMAGED:
                if self.waker.repair(held, found.next_offset):
                    return
                found = self._get(header, wanted)
            code = pull_code(found.status, header.queue_offset)
            if self._is_archived(header):
                answer = self._ask_again(request, header)
            else:
                answer = self._answer(request, held.connection, header, group, found, code)
        except RefusedError as refused:
            answer = request.reply(refused.code, str(refused))
        except NotCompiledError:
            answer = self._ask_again(request, header)
        except CongreveError as error:  # of a repair
            answer = request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        self.waker.answer(held, answer)

    def _is_archived(self, header: PullMessageRequestHeader) -> bool:
        topic = header.topic
        low = self._store.min_offset(topic, header.queue_id)
        return self.archived is not None and self.archived.has(topic, header.queue_offset, low)

    def _answer_archived(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        found: GetResult | ArchivedMessages,
    ) -> RemotingCommand:
        self._commit(header)
        code = pull_code(found.status, header.queue_offset)
        return self._answer(request, connection, header, group, found, code)

    def _answer_cold(self, held: SuspendedPull) -> None:
        """Answer a pull whose messages are in memory now, even if its filter matches none."""
        if not self.waker.wake(held):
            self._resume(held)

    def _ask_again(
        self, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand:
        """The answer when the filter changed meanwhile: the next pull compiles the new one."""
        topic, queue_id = header.topic, header.queue_id
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=header.queue_offset,
            min_offset=max(self._store.min_offset(topic, queue_id), 0),
            max_offset=self._store.max_offset(topic, queue_id),
        ).fields()
        remark = GetStatus.NO_MATCHED_MESSAGE.name
        return request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, remark, fields)

    def _dismiss(self, held: SuspendedPull) -> None:
        """Answer with an error: clients wait before they retry."""
        request = RemotingCommand.decode(held.frame)
        answer = request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, self.stopping_remark)
        held.connection.send(answer)

    @property
    def stopping_remark(self) -> str:
        """The remark in the answers to waiting pulls when the broker stops."""
        return f"the broker[{self._config.broker_name}] is stopping"

    def _start_repair(self, entry: tuple[ConsumeQueue, int], done: Callable[[], None]) -> bool:
        self._store.repairs.start(*entry).add_done_callback(lambda _: done())
        return True

    def _get(
        self, header: PullMessageRequestHeader, wanted: MessageFilter, *, repair: bool = True
    ) -> GetResult:
        topic, queue_id, count = header.topic, header.queue_id, max(header.max_msg_nums, 1)
        return self._store.get(topic, queue_id, header.queue_offset, count, *wanted, repair=repair)

    def _beginning(self, header: PullMessageRequestHeader) -> int | None:
        """Where a consumer of a deleted topic begins to read the next one of its name."""
        if self._config.is_slave:
            return None
        topic, queue_id = header.topic, header.queue_id
        ends = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        place = header.consumer_group, topic, queue_id
        return self._metadata.former_readers.beginning(place, header.queue_offset, ends)

    def _begin_again(
        self, request: RemotingCommand, header: PullMessageRequestHeader, first: int
    ) -> RemotingCommand:
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=first,
            min_offset=max(self._store.min_offset(header.topic, header.queue_id), 0),
            max_offset=max(self._store.max_offset(header.topic, header.queue_id), 0),
        ).fields()
        remark = f"topic[{header.topic}] was deleted and created again"
        return request.reply(ResponseCode.PULL_OFFSET_MOVED, remark, fields)

    def _answer(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        found: GetResult | ArchivedMessages,
        code: ResponseCode,
    ) -> RemotingCommand:
        suggested = 0
        if self._config.is_slave and not self._config.slave_read_enable:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if self._config.slave_read_enable:
            slow = found.suggest_slave
            suggested = group.which_broker_when_consume_slowly if slow else group.broker_id
        if code is ResponseCode.PULL_OFFSET_MOVED:
            self._offset_moved.store(header, found)
        elif code is ResponseCode.SUCCESS:
            counter = self._stats.pull_counter(header.consumer_group, header.topic)
            counter.add(found.count, found.size)
            self.quota.charge(request, connection, found.count, found.size)
        else:
            self._stats.missed()
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=suggested,
            next_begin_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
        ).fields()
        body = b"".join(found.buffers) if code is ResponseCode.SUCCESS else b""
        return request.reply(code, found.status.name, fields, body)

    def suspend(self, held: SuspendedPull, timeout_ms: int, end: int) -> bool:
        """Hold a pull that saw the queue up to `end` for `timeout_ms`; False when too many wait."""
        # When it may not, the Python handler tries again.
        return self.quota.holds(held, counts=False) and self._suspend(held, timeout_ms, end)

    def _suspend(self, held: SuspendedPull, timeout_ms: int, end: int) -> bool:
        if not self._config.long_polling_enable:
            timeout_ms = self._config.short_polling_time_mills
        return self.long_polling.suspend(held, max(timeout_ms, 0) / 1000, end)

    def recheck_steps(
        self, refusal: Callable[[RemotingCommand, Connection], RemotingCommand | None]
    ) -> Generator[None, None, None]:
        """Answer the waiting pulls for which `refusal` has an answer, because accounts changed."""
        self.validated_pulls.note_change()
        for held in self.long_polling.waiting():
            answer = refusal(RemotingCommand.decode(held.frame), held.connection)
            if answer is not None and self.long_polling.withdraw(held):
                held.connection.send(answer)
            yield

    def stop(self) -> None:
        """Dismiss all waiting pulls; their connections are closed next."""
        self.long_polling.stop()
        self.disk_wait.stop()
        self.repair_wait.stop()
        self.quota.stop()
        if self.archived is not None:
            self.archived.stop()


def _held(
    request: RemotingCommand,
    header: PullMessageRequestHeader,
    connection: Connection,
    validated: ValidatedPull,
) -> SuspendedPull:
    return SuspendedPull(
        connection,
        request.encode(),
        validated,
        offset=header.queue_offset,
        max_count=header.max_msg_nums,
        serialize_type=request.serialize_type,
        opaque=request.opaque,
    )
