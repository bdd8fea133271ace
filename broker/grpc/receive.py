"""ReceiveMessage, by pops of the broker (RocketMQ 5: ReceiveMessageActivity)."""

from collections.abc import Iterator
from typing import Any

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.grpc.client_settings import is_fifo
from congreve.broker.grpc.codecs.codes import Code, code_of
from congreve.broker.grpc.lite import LiteCalls
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import checked_group, checked_topic
from congreve.broker.grpc.received import Received
from congreve.broker.grpc.renewals import (
    INVISIBLE_MIN_MS,
    LOST_MS,
    Renewals,
    check_invisible,
)
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.records.message.message import Record, one_more
from congreve.records.message.pop_handle import PopHandle, PoppedFrom
from congreve.records.message.pop_offsets import (
    PoppedMessage,
    PoppedQueue,
    decode_message_offsets,
    decode_order_counts,
    decode_start_offsets,
)
from congreve.records.message.properties import POP_CK
from congreve.records.record import decode_records
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.pop_headers import (
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)

BATCH_MAX = 32
POLL_MAX_MS = 20_000
ANSWER_MS = 1_500
"""Of a call's time that is left for the answer, but not more than half of it."""
_SQL = 2
_FROM_END = 1


class Receiving:
    """Serves ReceiveMessage (RocketMQ 5: ReceiveMessageActivity, ConsumerProcessor)."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        renewals: Renewals,
        lite: LiteCalls,
        clock: Clock,
        protos: Any,
    ) -> None:
        self._config = config
        self._groups = groups
        self._renewals = renewals
        self._lite = lite
        self._clock = clock
        self._protos = protos
        self._received = Received(protos)

    async def receive(self, call: GrpcCall, request: Any) -> Any:
        """Answer a ReceiveMessageRequest: a status, the messages, and last the time.

        Raises CallRefusedError.
        """
        header = self._header(call, request)
        if self._lite.is_lite(header):
            return await self._lite.receive(call, header, auto_renew=request.auto_renew)
        answer = await call.ask(
            RequestCode.POP_MESSAGE, header.fields(), timeout_s=header.poll_time / 1000 + 10
        )
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            raise CallRefusedError(Code.MESSAGE_NOT_FOUND, "no new message")
        if answer.code == ResponseCode.POLLING_FULL:
            raise CallRefusedError(Code.TOO_MANY_REQUESTS, answer.remark or "polling full")
        if answer.code != ResponseCode.SUCCESS:
            raise CallRefusedError(Code(code_of(answer.code)), answer.remark or "")
        found = list(self._found(header, answer))
        handles = [handle for _, handle, _ in found]
        if call.cancelled:
            await self._give_back(call, header, handles)
        elif request.auto_renew:
            self._renewals.hold(call.client_id, header.consumer_group, header.topic, handles)
        new = self._protos.ReceiveMessageResponse
        first = new()
        first.status.code, first.status.message = Code.OK, "OK"
        call.reply(first.SerializeToString(), last=False)
        for record, handle, attempt in found:
            text = f"{handle.encode()} {record.physical_offset}"
            message = self._received.message(record, text, attempt)
            call.reply(new(message=message).SerializeToString(), last=False)
        last = new()
        last.delivery_timestamp.FromMilliseconds(self._clock.now())
        return last

    def hold(self, told: bytes) -> None:
        """Renew what a client has got of compiled code (codecs/receives.pyx)."""
        client_id, group, topic, *numbers, offsets = told.decode("utf-8", "replace").split("\0")
        pop_ms, invisible_ms = map(int, numbers)
        handles = [
            PopHandle(
                start_offset=of_queue[0],
                pop_ms=pop_ms,
                invisible_ms=invisible_ms,
                revive_queue_id=0,
                kind=queue.kind,
                broker_name=self._config.broker_name,
                queue_id=queue.queue_id,
                offset=offset,
            )
            for queue, of_queue in decode_message_offsets(offsets).items()
            for offset in of_queue
        ]
        self._renewals.hold(client_id, group, topic, handles)

    def _header(self, call: GrpcCall, request: Any) -> PopMessageRequestHeader:
        topic = checked_topic(request.message_queue.topic)
        group = checked_group(request.group)
        if request.batch_size <= 0:
            raise CallRefusedError(Code.BAD_REQUEST, f"batch_size {request.batch_size} is below 1")
        invisible_ms = self._renewals.renewed_ms
        if not request.auto_renew:
            invisible_ms = request.invisible_duration.ToMilliseconds()
            check_invisible(invisible_ms, INVISIBLE_MIN_MS)
        poll_ms = POLL_MAX_MS
        if request.HasField("long_polling_timeout"):
            poll_ms = min(request.long_polling_timeout.ToMilliseconds(), poll_ms)
        left_ms = call.timeout_ms
        if left_ms is not None:
            poll_ms = min(poll_ms, left_ms - min(ANSWER_MS, left_ms // 2))
        expression = request.filter_expression.expression.strip()
        is_sql = request.filter_expression.type == _SQL
        if is_sql and not expression:
            raise CallRefusedError(Code.ILLEGAL_FILTER_EXPRESSION, "the SQL expression is empty")
        return PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=min(request.batch_size, BATCH_MAX),
            invisible_time=invisible_ms,
            poll_time=max(poll_ms, 0),
            init_mode=_FROM_END,
            born_time=self._clock.now(),
            exp_type="SQL92" if is_sql else "TAG",
            exp=expression or "*",
            order=is_fifo(self._groups.find(group)),
            attempt_id=request.attempt_id or None,
        )

    def _found(
        self, asked: PopMessageRequestHeader, answer: RemotingCommand
    ) -> Iterator[tuple[Record, PopHandle, int]]:
        """Each record with its handle, and which delivery it is, from 1."""
        header = PopMessageResponseHeader.read(answer)
        starts = decode_start_offsets(header.start_offset_info or "")
        counts = decode_order_counts(header.order_count_info or "")
        for record in decode_records(answer.body):
            queue = PoppedQueue(PoppedFrom.TOPIC, record.queue_id)
            text = record.properties.get(POP_CK)
            if text is not None:
                handle = PopHandle.decode(text)
            else:
                handle = PopHandle(
                    start_offset=starts.get(queue, record.queue_offset),
                    pop_ms=header.pop_time,
                    invisible_ms=header.invisible_time,
                    revive_queue_id=header.revive_qid,
                    kind=PoppedFrom.TOPIC,
                    broker_name=self._config.broker_name,
                    queue_id=record.queue_id,
                    offset=record.queue_offset,
                )
            attempts = record.reconsume_times
            if asked.order:
                place = PoppedMessage(queue.kind, queue.queue_id, record.queue_offset)
                attempts = counts.get(place, counts.get(queue, 0))
            yield record, handle, one_more(attempts)

    async def _give_back(
        self, call: GrpcCall, asked: PopMessageRequestHeader, handles: list[PopHandle]
    ) -> None:
        """Let messages come again whose receiver is gone."""
        for handle in handles:
            header = ChangeInvisibleTimeRequestHeader(
                consumer_group=asked.consumer_group,
                topic=handle.kind.topic(asked.consumer_group, asked.topic),
                queue_id=handle.queue_id,
                extra_info=handle.encode(),
                offset=handle.offset,
                invisible_time=LOST_MS,
            )
            await call.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.fields())
