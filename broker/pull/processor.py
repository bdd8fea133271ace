"""Pulls: the loop decides, the lane answers (RocketMQ: PullMessageProcessor).

The loop validates the first pull of each kind, and gives it back to its lane, which serves this and
later ones. It lets a thread read what is not in memory, and answers what a lane does not: with any
result, and every check.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.filters import NotCompiledError
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.offsets import Commit
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.pull.checks import PullChecks
from congreve.broker.pull.disk_wait import DiskWait, UnreadablePull
from congreve.broker.pull.lanes.pulls import SERVE_AGAIN_KIND
from congreve.broker.pull.lanes.table import LanePullTable
from congreve.broker.pull.lanes.validated_pull import ValidatedPull, ValidatedPulls
from congreve.broker.pull.offset_moved import OffsetMovedEvents
from congreve.broker.pull.progress import COMMITTED, POLLED, PullProgress
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.pull.response_codes import pull_code
from congreve.broker.pull.subscriptions import FLAG_SUBSCRIPTION, PullSubscriptions
from congreve.broker.quotas.send_quota import BUSY_REMARK
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.read.gather import TagFilter
from congreve.engine.read.reader import GetResult, GetStatus
from congreve.engine.store import MessageStore
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageRequestHeader, PullMessageResponseHeader
from congreve.remoting.messages.signature import SIGNATURE
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

if TYPE_CHECKING:
    from congreve.broker.pull.archived_pulls import ArchivedMessages, ArchivedPulls

FLAG_COMMIT_OFFSET, FLAG_SUSPEND = 1, 2


class PullMessageProcessor:
    """PULL_MESSAGE and LITE_PULL_MESSAGE; `note_read(connection, begun_ms)` gets pulls that have
    waited for the disk only.

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
        note_read: Callable[[Connection, int], None] = lambda *_: None,
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
            groups=metadata.groups.table,
            topics=metadata.topics.table,
            consumers=consumers.groups,
        )
        self._note_read = note_read
        self._given_back: int | None = None
        self.disk_wait = DiskWait(
            fetch=store.cold_reads.fetch,
            give_back=self._give_back,
            dismiss=self._dismiss,
            delay_s=lambda pull: quota.read_delay_s(pull.frame, pull.connection),
        )
        self.repair_wait = DiskWait(
            fetch=self._start_repair, give_back=self._give_back, dismiss=self._dismiss
        )
        metadata.topics.listen(self.validated_pulls.note_change)
        metadata.groups.listen(self.validated_pulls.note_change)
        consumers.listen(self.validated_pulls.note_change)

    def follow_lane(self, known: LanePullTable) -> None:
        """Commit the offsets of pulls that a lane served; a slave has those of its master."""

        def commits() -> Iterator[Commit]:
            for commit in known.take_commits():
                group, topic, _, _ = commit
                if self._config.is_slave:
                    continue
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
        """Validate a pull for its lane; None when the lane has it.

        Its body means nothing, and no waiting pull keeps it. A signature may be verified again.
        """
        if SIGNATURE not in request.ext_fields:
            request.body = b""
        header = PullMessageRequestHeader.read(request)
        if self._given_back is not None:
            return self._answer_ended(request, header, connection, self._given_back)
        try:
            group, wanted = self._checks.check(header, connection)
            missing = self._metadata.missing(group=header.consumer_group)
        except NotCompiledError as filtered:
            missing = self._subscriptions.compile(filtered)
        if missing is None:
            return self._serve(request, header, connection, group, wanted)
        return self._wait_and_serve(missing, request, connection)

    @contextmanager
    def given_back(self, flags: int) -> Iterator[None]:
        """Pulls that are handled meanwhile were ended by a lane, with these PullFlags."""
        self._given_back = flags
        try:
            yield
        finally:
            self._given_back = None

    async def _wait_and_serve(
        self, missing: Awaitable[object] | None, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | None:
        """Serve when the filter is compiled, and the group that the pull created is on disk."""
        header = PullMessageRequestHeader.read(request)
        while missing is not None:
            await missing
            try:
                group, wanted = self._checks.check(header, connection)
                missing = self._metadata.missing(group=header.consumer_group)
            except NotCompiledError as filtered:  # the group has another filter now
                missing = self._subscriptions.compile(filtered)
        answer = self._serve(request, header, connection, group, wanted)
        return await answer if isinstance(answer, Awaitable) else answer

    def _serve(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        connection: Connection,
        group: SubscriptionGroupConfig,
        wanted: MessageFilter,
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Give the pull to its lane, or answer it if no lane can serve it."""
        frame = request.encode()
        asked = header, group, wanted
        if (
            request.is_oneway
            or self._beginning(header) is not None
            or not self.validated_pulls.keep(frame, self._validated(*asked))
        ):
            if self.quota.is_used_up(request, connection):
                raise RefusedError(ResponseCode.FLOW_CONTROL, BUSY_REMARK)
            return self._answer(request, connection, *asked, may_wait=not request.is_oneway)
        progress = PullProgress(begun_ms=time.monotonic_ns() // 1_000_000)
        connection.tell_lane(SERVE_AGAIN_KIND, progress.entry(frame))
        return None

    def _answer_ended(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        connection: Connection,
        flags: int,
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        try:
            group, wanted = self._checks.check(header, connection)
        except NotCompiledError:
            return self._ask_again(request, header)
        if flags & COMMITTED:
            header.sys_flag &= ~FLAG_COMMIT_OFFSET
        may_wait = not flags & COMMITTED  # the lane had no room for it
        return self._answer(request, connection, header, group, wanted, may_wait=may_wait)

    def _answer(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        wanted: MessageFilter,
        *,
        may_wait: bool,
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Answer a pull with any result; one that `may_wait` without messages after a while."""
        first = self._beginning(header)
        if first is not None:
            return self._begin_again(request, header, first)
        archived = self._is_archived(header)
        found = self._get(header, wanted, repair=not archived)
        answered = partial(self._answer_found, request, connection, header, group)
        if archived and self.archived is not None:
            return self.archived.serve(header, wanted, found, answered)
        code = pull_code(found.status, header.queue_offset)
        if code is ResponseCode.PULL_NOT_FOUND and may_wait and header.sys_flag & FLAG_SUSPEND:
            return self._answer_later(request, connection, header)
        return answered(found)

    async def _answer_later(
        self, request: RemotingCommand, connection: Connection, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """Answer a pull without messages that no lane holds (shortPollingTimeMills)."""
        timeout_ms = min(header.suspend_timeout_millis, self._config.short_polling_time_mills)
        await asyncio.sleep(max(timeout_ms, 0) / 1000)
        try:
            asked = self._checks.check(header, connection)
        except NotCompiledError:
            return self._ask_again(request, header)
        answer = self._answer(request, connection, header, *asked, may_wait=False)
        return await answer if isinstance(answer, Awaitable) else answer

    def _commit(self, header: PullMessageRequestHeader) -> None:
        if header.sys_flag & FLAG_COMMIT_OFFSET and not self._config.is_slave:
            self._metadata.offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )

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

    def _is_archived(self, header: PullMessageRequestHeader) -> bool:
        topic = header.topic
        low = self._store.min_offset(topic, header.queue_id)
        return self.archived is not None and self.archived.has(topic, header.queue_offset, low)

    def wait_for_disk(self, connection: Connection, entry: bytes) -> None:
        """Let a pull wait until its messages are read, or its queue is repaired."""
        progress, frame = PullProgress.of_entry(entry)
        pull = UnreadablePull(connection, progress, frame)
        if progress.status == GetStatus.DAMAGED:
            header = PullMessageRequestHeader.read(RemotingCommand.decode(frame))
            queue = self._store.queues.get(header.topic, header.queue_id)
            self.repair_wait.suspend(pull, (queue, progress.place))
        else:
            self.disk_wait.suspend(pull, progress.place)

    def _give_back(self, pull: UnreadablePull) -> None:
        """Let the lane answer, even if the filter matches none of the messages."""
        pull.connection.tell_lane(SERVE_AGAIN_KIND, pull.progress.entry(pull.frame))
        if not pull.progress.flags & POLLED:
            self._note_read(pull.connection, pull.progress.begun_ms)

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

    def _dismiss(self, pull: UnreadablePull) -> None:
        """Answer with an error: clients wait before they retry."""
        request = RemotingCommand.decode(pull.frame)
        answer = request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, self.stopping_remark)
        pull.connection.send(answer)

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

    def _answer_found(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        found: GetResult | ArchivedMessages,
    ) -> RemotingCommand:
        self._commit(header)
        code = pull_code(found.status, header.queue_offset)
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

    def stop(self) -> None:
        """Dismiss all waiting pulls; their connections are closed next."""
        self.disk_wait.stop()
        self.repair_wait.stop()
        if self.archived is not None:
            self.archived.stop()
