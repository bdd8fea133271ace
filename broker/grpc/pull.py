"""PullMessage, UpdateOffset, GetOffset and QueryOffset, which RocketMQ's proxy does not serve
(RocketMQ: PullMessageProcessor, ConsumerManageProcessor)."""

from typing import Any

from congreve.broker.grpc.codecs.codes import Code, code_of
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import checked_group, checked_topic
from congreve.broker.grpc.receive import ANSWER_MS, BATCH_MAX, POLL_MAX_MS
from congreve.broker.grpc.received import Received
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.records.record import decode_records
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

# Flags of a pull: it may wait, and it has its subscription.
_SUSPEND, _SUBSCRIPTION = 2, 4
# Numbers of definition.proto.
_SQL = 2
_BEGINNING, _TIMESTAMP = 0, 2
_NOTHING_NEW = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY


class Pulling:
    """Serves clients that keep their offsets themselves, or let the broker keep those of a group.

    (RocketMQ: PullMessageProcessor, ConsumerManageProcessor.)
    """

    def __init__(self, topics: TopicConfigManager, protos: Any) -> None:
        self._topics = topics
        self._protos = protos
        self._received = Received(protos)

    async def pull(self, call: GrpcCall, request: Any) -> Any:
        """Answer a PullMessageRequest: a status, the messages, and last where to go on.

        Raises CallRefusedError.
        """
        group, (topic, queue_id) = checked_group(request.group), self._queue(request)
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=_checked_offset(request.offset),
            max_msg_nums=_checked_size(request.batch_size),
            sys_flag=_SUSPEND | _SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=_poll_ms(call, request),
            sub_version=0,
            subscription=request.filter_expression.expression.strip() or "*",
            expression_type="SQL92" if request.filter_expression.type == _SQL else "TAG",
        )
        answer = await call.ask(
            RequestCode.PULL_MESSAGE,
            header.fields(),
            timeout_s=header.suspend_timeout_millis / 1000 + 10,
        )
        new = self._protos.PullMessageResponse
        first = new()
        if answer.code == ResponseCode.SUCCESS:
            first.status.code, first.status.message = Code.OK, "OK"
        elif answer.code in _NOTHING_NEW:
            first.status.code, first.status.message = Code.MESSAGE_NOT_FOUND, "no new message"
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
            first.status.code = Code.ILLEGAL_OFFSET
            first.status.message = f"queue {queue_id} of {topic} has no offset {request.offset}"
        else:
            raise _refused(answer)
        if not call.cancelled:
            call.reply(first.SerializeToString(), last=False)
            for record in decode_records(answer.body):
                message = self._received.message(record, "", record.reconsume_times + 1)
                message.system_properties.ClearField("receipt_handle")
                call.reply(new(message=message).SerializeToString(), last=False)
        return new(next_offset=PullMessageResponseHeader.read(answer).next_begin_offset)

    async def update(self, call: GrpcCall, request: Any) -> Any:
        """Answer an UpdateOffsetRequest when the offset is on disk. Raises CallRefusedError."""
        group, (topic, queue_id) = checked_group(request.group), self._queue(request)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            commit_offset=_checked_offset(request.offset),
        )
        answer = await call.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header.fields())
        if answer.code != ResponseCode.SUCCESS:
            raise _refused(answer)
        return _ok(self._protos.UpdateOffsetResponse())

    async def offset(self, call: GrpcCall, request: Any) -> Any:
        """Answer a GetOffsetRequest. Raises CallRefusedError."""
        group, (topic, queue_id) = checked_group(request.group), self._queue(request)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id
        )
        answer = await call.ask(RequestCode.QUERY_CONSUMER_OFFSET, header.fields())
        return self._offset(self._protos.GetOffsetResponse(), answer)

    async def query(self, call: GrpcCall, request: Any) -> Any:
        """Answer a QueryOffsetRequest. Raises CallRefusedError."""
        topic, queue_id = self._queue(request)
        if request.query_offset_policy == _TIMESTAMP:
            if not request.HasField("timestamp"):
                raise CallRefusedError(Code.BAD_REQUEST, "a query by time needs a timestamp")
            asked = SearchOffsetRequestHeader(
                topic=topic, queue_id=queue_id, timestamp=request.timestamp.ToMilliseconds()
            )
            answer = await call.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, asked.fields())
        else:
            begins = request.query_offset_policy == _BEGINNING
            code = RequestCode.GET_MIN_OFFSET if begins else RequestCode.GET_MAX_OFFSET
            queue = QueueRequestHeader(topic=topic, queue_id=queue_id)
            answer = await call.ask(code, queue.fields())
        return self._offset(self._protos.QueryOffsetResponse(), answer)

    def _offset(self, response: Any, answer: RemotingCommand) -> Any:
        if answer.code != ResponseCode.SUCCESS:
            raise _refused(answer)
        response.offset = OffsetResponseHeader.read(answer).offset
        return _ok(response)

    def _queue(self, request: Any) -> tuple[str, int]:
        """The topic and the queue of a request. Raises CallRefusedError."""
        topic = checked_topic(request.message_queue.topic)
        known = self._topics.table.get(topic)
        if known is None:
            raise CallRefusedError(Code.TOPIC_NOT_FOUND, f"topic[{topic}] not exist")
        queue_id, count = request.message_queue.id, known.read_queue_nums
        if not 0 <= queue_id < count:
            raise CallRefusedError(
                Code.BAD_REQUEST, f"queue {queue_id} of {topic}: it has the queues 0 to {count - 1}"
            )
        return topic, queue_id


def _poll_ms(call: GrpcCall, request: Any) -> int:
    """How long a pull may wait: not longer than the client does."""
    asked_ms: int = request.long_polling_timeout.ToMilliseconds()
    if call.timeout_ms is not None:
        asked_ms = min(asked_ms, call.timeout_ms - min(ANSWER_MS, call.timeout_ms // 2))
    return max(min(asked_ms, POLL_MAX_MS), 0)


def _checked_size(size: int) -> int:
    if size <= 0:
        raise CallRefusedError(Code.BAD_REQUEST, f"batch_size {size} is below 1")
    return min(size, BATCH_MAX)


def _checked_offset(offset: int) -> int:
    if offset < 0:
        raise CallRefusedError(Code.ILLEGAL_OFFSET, f"the offset {offset} is below 0")
    return offset


def _refused(answer: RemotingCommand) -> CallRefusedError:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return CallRefusedError(Code.OFFSET_NOT_FOUND, answer.remark or "")
    return CallRefusedError(Code(code_of(answer.code)), answer.remark or "")


def _ok(response: Any) -> Any:
    response.status.code, response.status.message = Code.OK, "OK"
    return response
