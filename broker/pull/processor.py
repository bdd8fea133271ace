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
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.pull.answers import FLAG_COMMIT_OFFSET, PullAnswers
from congreve.broker.pull.lanes.pulls import SERVE_AGAIN_KIND
from congreve.broker.pull.progress import COMMITTED, PullProgress
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.pull.response_codes import pull_code
from congreve.broker.pull.unreadable_pulls import UnreadablePulls
from congreve.broker.pull.validation import Asked, PullValidation
from congreve.broker.quotas.send_quota import BUSY_REMARK
from congreve.broker.requests.wait_limit import WaitLimit
from congreve.engine.read.reader import GetResult
from congreve.engine.store import MessageStore
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageRequestHeader
from congreve.remoting.messages.signature import SIGNATURE
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

if TYPE_CHECKING:
    from congreve.broker.pull.archived_pulls import ArchivedPulls

FLAG_SUSPEND = 2


class PullMessageProcessor:
    """PULL_MESSAGE and LITE_PULL_MESSAGE.

    `note_read(connection, begun_ms)` gets pulls that have waited for the disk only, `note_pull` the
    group and topic of those that come to the event loop, such as a member's first one.

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
        note_pull: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._note_pull = note_pull
        self._config = config
        self._former_readers = metadata.former_readers
        self._store = store
        self.quota = quota
        self._given_back: int | None = None
        self._short_polls = WaitLimit()
        self.archived = archived
        self.validation = PullValidation(config, metadata, consumers, store, stats)
        self.answers = PullAnswers(config, metadata, store, stats, clock, quota)
        self.unreadable = UnreadablePulls(store, self.answers, quota, note_read)

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
        self._note_pull(header.consumer_group, header.topic)
        if self._given_back is not None:
            return self._answer_ended(request, header, connection, self._given_back)
        checked = self.validation.check(header, connection)
        if isinstance(checked, Awaitable):
            return self._wait_and_serve(checked, request, connection)
        return self._serve(request, header, connection, checked)

    @contextmanager
    def given_back(self, flags: int) -> Iterator[None]:
        """Pulls that are handled meanwhile were ended by a lane, with these PullFlags."""
        self._given_back = flags
        try:
            yield
        finally:
            self._given_back = None

    async def _wait_and_serve(
        self, checked: Asked | Awaitable[object], request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | None:
        """Serve when the filter is compiled, and the group that the pull created is on disk."""
        header = PullMessageRequestHeader.read(request)
        while isinstance(checked, Awaitable):
            await checked
            checked = self.validation.check(header, connection)  # by the filter of now
        answer = self._serve(request, header, connection, checked)
        return await answer if isinstance(answer, Awaitable) else answer

    def _serve(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        connection: Connection,
        asked: Asked,
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Give the pull to its lane, or answer it if no lane can serve it."""
        frame = request.encode()
        if (
            request.is_oneway
            or self._beginning(header) is not None
            or not self.validation.keep(frame, header, asked)
        ):
            if self.quota.is_used_up(request, connection):
                raise RefusedError(ResponseCode.FLOW_CONTROL, BUSY_REMARK)
            return self._answer(request, connection, header, asked, may_wait=not request.is_oneway)
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
        asked = self.validation.check_again(header, connection)
        if asked is None:
            return self.answers.ask_again(request, header)
        if flags & COMMITTED:
            header.sys_flag &= ~FLAG_COMMIT_OFFSET
        may_wait = not flags & COMMITTED  # the lane had no room for it
        return self._answer(request, connection, header, asked, may_wait=may_wait)

    def _answer(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: PullMessageRequestHeader,
        asked: Asked,
        *,
        may_wait: bool,
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Answer a pull with any result; one that `may_wait` without messages after a while."""
        first = self._beginning(header)
        if first is not None:
            return self.answers.begin_again(request, header, first)
        group, wanted = asked
        archived = self._is_archived(header)
        found = self._get(header, wanted, repair=not archived)
        answered = partial(self.answers.found, request, connection, header, group)
        if archived and self.archived is not None:
            return self.archived.serve(request, header, wanted, found, answered)
        code = pull_code(found.status, header.queue_offset)
        if code is ResponseCode.PULL_NOT_FOUND and may_wait and header.sys_flag & FLAG_SUSPEND:
            return self._answer_later(request, connection, header)
        return answered(found)

    async def _answer_later(
        self, request: RemotingCommand, connection: Connection, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """Answer a pull without messages that no lane holds (shortPollingTimeMills)."""
        timeout_ms = min(header.suspend_timeout_millis, self._config.short_polling_time_mills)
        with self._short_polls.waiting(request) as has_room:
            await asyncio.sleep(max(timeout_ms, 0) / 1000 if has_room else 0)
        asked = self.validation.check_again(header, connection)
        if asked is None:
            return self.answers.ask_again(request, header)
        answer = self._answer(request, connection, header, asked, may_wait=False)
        return await answer if isinstance(answer, Awaitable) else answer

    def _is_archived(self, header: PullMessageRequestHeader) -> bool:
        topic = header.topic
        low = self._store.min_offset(topic, header.queue_id)
        return self.archived is not None and self.archived.has(topic, header.queue_offset, low)

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
        return self._former_readers.beginning(place, header.queue_offset, ends)

    def stop(self) -> None:
        """Dismiss all waiting pulls; their connections are closed next."""
        self.unreadable.stop()
        if self.archived is not None:
            self.archived.stop()
