"""Pops: messages that are handed out one by one (RocketMQ: PopMessageProcessor)."""

import time
from collections import deque
from collections.abc import Awaitable, Mapping
from functools import partial

from congreve.base.clock import Clock
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.filters import NotCompiledError
from congreve.broker.pop.checks import PopChecks
from congreve.broker.pop.service import Pops
from congreve.broker.pop.taking import REVIVE_QUEUE_ID, Asked, PopResult, PopTaking
from congreve.broker.pop.validation import PopValidation
from congreve.broker.pop.waiting import WaitingPop
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.pull.subscriptions import PullSubscriptions
from congreve.broker.quotas.send_quota import BUSY_REMARK
from congreve.records.message.pop_handle import ORDERED_REVIVE_QUEUE_ID
from congreve.records.message.pop_offsets import (
    PoppedMessage,
    PoppedQueue,
    encode_message_offsets,
    encode_order_counts,
    encode_start_offsets,
)
from congreve.remoting.loop.wake_up_timer import WakeUpTimer
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.pop_headers import (
    NO_REMARK,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

FOUND = "FOUND"
NO_MESSAGE = "NO_MESSAGE_IN_QUEUE"
LOST_S = 0.5
"""Seconds after which a pop that was answered is known to have had a client."""


class PopMessageProcessor:
    """POP_MESSAGE, NOTIFICATION and POLLING_INFO.

    RocketMQ: PopMessageProcessor, NotificationProcessor, PollingInfoProcessor.
    """

    def __init__(
        self,
        pops: Pops,
        checks: PopChecks,
        taking: PopTaking,
        validation: PopValidation,
        subscriptions: PullSubscriptions,
        quota: PullQuota,
        clock: Clock,
    ) -> None:
        self._pops = pops
        self._checks = checks
        self._taking = taking
        self._validation = validation
        self._subscriptions = subscriptions
        self._quota = quota
        self._clock = clock
        self._answered: deque[tuple[float, Connection, PopResult]] = deque()
        self._loss_timer = WakeUpTimer(self._look_for_losses)

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def pop(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Take messages, or wait for some; None when the answer is sent later."""
        header = PopMessageRequestHeader.read(request)
        try:
            return self._pop(request, header, connection)
        except NotCompiledError as missing:
            return self._pop_when_compiled(missing, request, header, connection)
        except RefusedError as error:
            return _refused(request, error)

    async def _pop_when_compiled(
        self,
        missing: NotCompiledError,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        connection: Connection,
    ) -> RemotingCommand | None:
        try:
            await self._subscriptions.compile(missing)
            answer = self._pop(request, header, connection)
        except RefusedError as error:
            return _refused(request, error)
        return await answer if isinstance(answer, Awaitable) else answer

    def _pop(
        self, request: RemotingCommand, header: PopMessageRequestHeader, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        asked = self._checks.pop(header)
        if self._quota.is_used_up(request, connection):
            raise RefusedError(ResponseCode.FLOW_CONTROL, BUSY_REMARK)
        missing = self._pops.prepare(asked.group, asked.topic)
        if missing is not None:
            return self._take_when_saved(missing, request, connection, header, asked)
        return self._take(request, connection, header, asked)

    async def _take_when_saved(
        self,
        missing: Awaitable[object],
        request: RemotingCommand,
        connection: Connection,
        header: PopMessageRequestHeader,
        asked: Asked,
    ) -> RemotingCommand | None:
        """Take messages when the group and its retry topic are on disk, and at slaves."""
        await missing
        return self._take(request, connection, header, asked)

    def _take(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: PopMessageRequestHeader,
        asked: Asked,
    ) -> RemotingCommand | None:
        served = self._serve(request, connection, asked)
        self._validation.keep(header, asked)
        if served:
            return None
        pop = WaitingPop(
            (asked.group, asked.topic),
            header.queue_id,
            request,
            connection,
            serve=partial(self._watch_and_serve, request, connection, asked),
            end=partial(self._nothing, request, connection, asked),
        )
        if not self._serve_or_hold(pop, header.poll_time, header.born_time):
            return _refused(request, RefusedError(ResponseCode.POLLING_FULL, "polling full"))
        return None

    def _watch_and_serve(
        self, request: RemotingCommand, connection: Connection, asked: Asked
    ) -> bool:
        self._watch(asked)
        return self._serve(request, connection, asked)

    def _serve(self, request: RemotingCommand, connection: Connection, asked: Asked) -> bool:
        """Answer a pop if there is something for it."""
        result = self._taking.take(asked)
        if not result.count and not result.full:
            return False
        if not result.count:
            refused = RefusedError(
                ResponseCode.POLLING_FULL,
                f"too many messages of group[{asked.group}] are not acknowledged",
            )
            connection.send(_refused(request, refused))
            return True
        self._quota.charge(
            request, connection, result.count, sum(len(each.body) for each in result.taken)
        )
        fields = _fields(asked, result)
        body = b"".join(each.body for each in result.taken)
        for each in result.taken:
            each.body = b""  # the result stays for a while
        answer = request.reply(ResponseCode.SUCCESS, FOUND, fields, body)
        self._pops.journal.answer(request, connection, answer, waits=False)
        self._answered.append((time.monotonic(), connection, result))
        self._loss_timer.set(LOST_S)
        return True

    def _look_for_losses(self) -> None:
        """Give back what pops took whose clients are gone: the broker learns that a bit later."""
        until = time.monotonic() - LOST_S
        while self._answered and self._answered[0][0] <= until:
            _, connection, result = self._answered.popleft()
            if connection.closed:
                self._taking.give_back(result)
        if self._answered:
            self._loss_timer.set(self._answered[0][0] - until)

    def _nothing(self, request: RemotingCommand, connection: Connection, asked: Asked) -> None:
        result = PopResult(pop_ms=self._clock.now(), left=self._taking.left(asked))
        fields = _fields(asked, result)
        connection.send(request.reply(ResponseCode.POLLING_TIMEOUT, NO_MESSAGE, fields))

    def _watch(self, asked: Asked) -> None:
        """Learn of messages that come from now on."""
        key = asked.group, asked.topic
        for queue_id in asked.queue_ids:
            self._pops.watch(key, asked.topic, queue_id)
        if not asked.ordered:
            self._pops.watch_retries(asked.group, asked.topic)

    def _serve_or_hold(self, pop: WaitingPop, poll_ms: int, born_ms: int) -> bool:
        """Let a request wait for what comes from now on; False if too many wait.

        One that may not wait is ended.
        """
        now = self._clock.now()
        left_ms = (born_ms if born_ms > 0 else now) + poll_ms - now
        if pop.serve():
            return True
        if poll_ms <= 0 or left_ms <= 0:
            pop.end()
            return True
        return self._pops.waiting.add(pop, left_ms / 1000)

    # --- requests that take nothing

    def notification(self, request: RemotingCommand, connection: Connection) -> None:
        """Say whether a pop would find messages; wait for some."""
        header = NotificationRequestHeader.read(request)
        asked = self._checks.notification(header)

        def answer(has_message: bool, polling_full: bool = False) -> bool:
            fields = NotificationResponseHeader(
                has_msg=has_message, polling_full=polling_full
            ).fields()
            connection.send(request.reply(ResponseCode.SUCCESS, NO_REMARK, fields))
            return True

        def serve() -> bool:
            self._watch(asked)
            return self._taking.has_messages(asked) and answer(True)

        def end() -> None:
            answer(False)

        pop = WaitingPop(
            (asked.group, asked.topic), header.queue_id, request, connection, serve, end
        )
        if not self._serve_or_hold(pop, header.poll_time, header.born_time):
            answer(False, polling_full=True)

    def polling_info(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """How many pops of a group wait for messages of a topic."""
        header = PollingInfoRequestHeader.read(request)
        self._checks.readable_queue(header.topic, header.queue_id)
        waiting = self._pops.waiting.of_key((header.consumer_group, header.topic))
        fields = PollingInfoResponseHeader(polling_num=waiting).fields()
        return request.reply(ResponseCode.SUCCESS, NO_REMARK, fields)


def _refused(request: RemotingCommand, error: RefusedError) -> RemotingCommand:
    return request.reply(error.code, str(error), PopMessageResponseHeader().fields())


def _fields(asked: Asked, result: PopResult) -> dict[str, str]:
    offsets = {PoppedQueue(each.kind, each.window.queue_id): each.offsets for each in result.taken}
    return PopMessageResponseHeader(
        pop_time=result.pop_ms,
        invisible_time=asked.invisible_ms,
        revive_qid=ORDERED_REVIVE_QUEUE_ID if asked.ordered else REVIVE_QUEUE_ID,
        rest_num=result.left,
        start_offset_info=encode_start_offsets({queue: of[0] for queue, of in offsets.items()}),
        msg_offset_info=encode_message_offsets(offsets),
        order_count_info=encode_order_counts(_order_counts(result) if asked.ordered else {}),
    ).fields()


def _order_counts(result: PopResult) -> dict[PoppedQueue | PoppedMessage, int]:
    counts: dict[PoppedQueue | PoppedMessage, int] = {}
    for each in result.taken:
        for offset, attempts in zip(each.offsets, each.attempts, strict=True):
            if attempts:
                counts[PoppedMessage(each.kind, each.window.queue_id, offset)] = attempts
        counts[PoppedQueue(each.kind, each.window.queue_id)] = min(each.attempts)
    return counts
