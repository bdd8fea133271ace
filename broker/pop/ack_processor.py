"""Acknowledgements and changes of the invisible time (RocketMQ: AckMessageProcessor)."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
import numpy
from numpy import int64

from congreve.base.clock import Clock
from congreve.broker.accounts.permissions import BATCH_ACK_MAX
from congreve.broker.errors import RefusedError, check_body_size
from congreve.broker.pop.checks import PopChecks
from congreve.broker.pop.lanes.acks import pop_time_of_change
from congreve.broker.pop.service import Pops
from congreve.engine.pop.in_flight import PopWindow
from congreve.engine.pop.results import Answer
from congreve.engine.store import MessageStore
from congreve.records.errors import RecordError
from congreve.records.layout import TOPIC_MAX
from congreve.records.message.pop_handle import ORDERED_REVIVE_QUEUE_ID, PopHandle, PoppedFrom
from congreve.records.message.topics import (
    RETRY_PREFIX,
    is_light,
    popped_topic,
    stored_pop_retry_topic,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.pop_bodies import BatchAck, BatchAckMessageRequestBody
from congreve.remoting.messages.pop_headers import (
    NO_REMARK,
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.wire.fast_headers import INVISIBLE_MAX_MS

Named = TypeVar("Named", AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader)

LightOf = Callable[[str, str, int, int], str | None]
"""The light topic from which a group popped a message of a topic's queue; None for any other."""


class AckMessageProcessor:
    """ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME.

    Their answers wait until the journal is as durable as a sent message. A handle that is not of
    the group's present attempt is refused: its message comes again.
    (RocketMQ: AckMessageProcessor, ChangeInvisibleTimeProcessor.)
    """

    def __init__(self, pops: Pops, checks: PopChecks, store: MessageStore, clock: Clock) -> None:
        self._pops = pops
        self._checks = checks
        self._store = store
        self._clock = clock
        self.light_of: LightOf = lambda group, topic, queue_id, offset: None

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    def ack(self, request: RemotingCommand, connection: Connection) -> None:
        """Settle one message."""
        header = self._of_lite(_stored(AckMessageRequestHeader.read(request)))
        handle = _handle(header.extra_info)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        window = self._pops.in_flight.find(group, topic, queue_id)
        ordered = handle.revive_queue_id == ORDERED_REVIVE_QUEUE_ID
        ack = self._pops.ordered.ack if ordered else PopWindow.ack
        if window is not None and ack(window, header.offset, handle.pop_ms) is Answer.DONE:
            self._pops.settled(window, ordered=ordered)
        else:
            self._check_repeated(header, handle)
        self._pops.journal.answer(request, connection, request.reply(ResponseCode.SUCCESS))

    def _check_repeated(self, header: AckMessageRequestHeader, handle: PopHandle) -> None:
        """Raise RefusedError, unless it repeats an acknowledgement before the handle's end."""
        answer = self._window(header).ack(header.offset, handle.pop_ms)
        expired = handle.pop_ms + handle.invisible_ms <= self._clock.now()
        if answer is not Answer.REPEATED or expired:
            raise _not_held(header.extra_info, answer)

    def batch_ack(self, request: RemotingCommand, connection: Connection) -> None:
        """Settle messages of several pops; those of handles that are not valid come again."""
        check_body_size(request, BATCH_ACK_MAX)
        acks = BatchAckMessageRequestBody.decode(request.body).acks
        if not acks:
            raise RefusedError(ResponseCode.NO_MESSAGE, "the batch has no acknowledgements")
        # None is settled if one is not valid.
        for ack, window in [(ack, self._window_of(ack)) for ack in acks]:
            offsets = numpy.fromiter(ack.offsets(window.begin, window.next), int64)
            ordered = ack.revive_queue_id == ORDERED_REVIVE_QUEUE_ID
            if ordered:
                for offset in offsets.tolist():
                    self._pops.ordered.ack(window, offset, ack.pop_time)
            else:
                window.ack_all(offsets, ack.pop_time)
            self._pops.settled(window, ordered=ordered)
        self._pops.journal.answer(request, connection, request.reply(ResponseCode.SUCCESS))

    def change(self, request: RemotingCommand, connection: Connection) -> None:
        """Let a message come again at another time; the answer has its new handle's numbers."""
        header = self._of_lite(_stored(ChangeInvisibleTimeRequestHeader.read(request)))
        handle = _handle(header.extra_info)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        window = self._pops.in_flight.find(group, topic, queue_id) or self._window(header)
        if not 0 <= header.invisible_time <= INVISIBLE_MAX_MS:
            self._window(header)  # its checks come first
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"invisibleTime[{header.invisible_time}] is not between 0 and {INVISIBLE_MAX_MS}",
            )
        now, invisible_ms = self._clock.now(), header.invisible_time
        if handle.revive_queue_id == ORDERED_REVIVE_QUEUE_ID:
            # The batch keeps its pop time.
            pop_ms, invisible_ms = handle.pop_ms, max(now + invisible_ms - handle.pop_ms, 0)
            answer = self._pops.ordered.change(window, header.offset, pop_ms, invisible_ms)
        else:
            pop_ms = pop_time_of_change(handle.pop_ms, now)
            answer = window.extend(header.offset, handle.pop_ms, pop_ms, invisible_ms)
        if answer is not Answer.DONE:
            self._window(header)
            raise _not_held(header.extra_info, answer)
        self._pops.changed()
        fields = ChangeInvisibleTimeResponseHeader(
            pop_time=pop_ms, invisible_time=invisible_ms, revive_qid=handle.revive_queue_id
        ).fields()
        changed = request.reply(ResponseCode.SUCCESS, NO_REMARK, fields)
        self._pops.journal.answer(request, connection, changed)

    def _of_lite(self, header: Named) -> Named:
        """A header with the light topic of its message, if the group has popped nothing of the
        topic itself."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if is_light(topic) or self._pops.in_flight.find(group, topic, queue_id) is not None:
            return header
        light = self.light_of(group, topic, queue_id, header.offset)
        return header if light is None else msgspec.structs.replace(header, topic=light)

    def _window_of(self, ack: BatchAck) -> PopWindow:
        topic = _kind(ack.retry).stored_topic(ack.consumer_group, ack.topic)
        return self._known_window(ack.consumer_group, topic, ack.queue_id)

    def _window(
        self, header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader
    ) -> PopWindow:
        topic, queue_id = header.topic, header.queue_id
        window = self._known_window(header.consumer_group, topic, queue_id)
        if is_light(topic):
            topic = popped_topic(header.consumer_group, topic)
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= header.offset < high:
            raise RefusedError(
                ResponseCode.NO_MESSAGE,
                f"offset {header.offset} of {topic} queue {queue_id} is not between {low} and"
                f" {high}",
            )
        return window

    def _known_window(self, group: str, topic: str, queue_id: int) -> PopWindow:
        self._checks.known_queue(popped_topic(group, topic) if is_light(topic) else topic, queue_id)
        window = self._pops.in_flight.find(group, topic, queue_id)
        if window is None:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"group[{group}] has popped nothing of {topic} queue {queue_id}",
            )
        return window


def _stored(header: Named) -> Named:
    """A header with the broker's name of the topic."""
    if len(header.topic) <= TOPIC_MAX or not header.topic.startswith(RETRY_PREFIX):
        return header
    group = header.consumer_group
    topic = stored_pop_retry_topic(group, popped_topic(group, header.topic))
    return msgspec.structs.replace(header, topic=topic)


def _kind(text: str) -> PoppedFrom:
    try:
        return PoppedFrom.parse(text)
    except RecordError as error:
        raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error


def _handle(text: str) -> PopHandle:
    try:
        return PopHandle.decode(text)
    except RecordError as error:
        why = f"the handle is illegal: {error}"
        raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, why) from error


def _not_held(handle: str, answer: Answer) -> RefusedError:
    why = {
        Answer.STALE: "there is a newer one",
        Answer.REPEATED: "its message was acknowledged, or its time is over",
        Answer.UNKNOWN: "its message was not popped",
    }
    return RefusedError(
        ResponseCode.MESSAGE_ILLEGAL, f"the handle {handle!r:.200} is not valid: {why[answer]}"
    )
