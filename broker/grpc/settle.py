"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue (RocketMQ 5:
AckMessageActivity, ChangeInvisibleDurationActivity, ForwardMessageToDLQActivity)."""

import asyncio
from typing import Any

from congreve.broker.grpc.codecs.codes import Code, code_of_settling
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import checked_group, checked_lite_topic, checked_topic
from congreve.broker.grpc.renewals import RENEWED_MS, check_invisible
from congreve.records.errors import RecordError
from congreve.records.message.pop_handle import PopHandle
from congreve.records.message.topics import light_topic
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import ConsumerSendMsgBackRequestHeader
from congreve.remoting.messages.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)

_DEAD = -1


class Handle:
    """The receipt handle of a request: that of the pop, and the message's place in the log.

    (RocketMQ 5: ReceiptHandle.)
    """

    def __init__(self, text: str, group: str, topic: str, lite: str = "") -> None:
        """`lite` is the message's lite topic. Raises CallRefusedError."""
        try:
            self.of_pop = PopHandle.decode(text)
            self.place = int(text.rsplit(" ", 1)[1])
        except (RecordError, ValueError) as error:
            why = f"the receipt handle is illegal: {error}"
            raise CallRefusedError(Code.INVALID_RECEIPT_HANDLE, why) from error
        self.text = text
        self.group = group
        self.topic = self.of_pop.kind.topic(group, topic)
        if lite:
            self.topic = light_topic(topic, checked_lite_topic(lite))

    def changed(self, answer: RemotingCommand) -> str:
        """The text of the handle after a change of the invisible time."""
        found = ChangeInvisibleTimeResponseHeader.read(answer)
        new = self.of_pop._replace(pop_ms=found.pop_time, invisible_ms=found.invisible_time)
        return f"{new.encode()} {self.place}"


class Settling:
    """Serves what becomes of received messages (RocketMQ 5: ConsumerProcessor)."""

    def __init__(self, protos: Any) -> None:
        self._protos = protos

    async def ack(self, call: GrpcCall, request: Any) -> Any:
        """Answer an AckMessageRequest. Raises CallRefusedError."""
        group, topic = checked_group(request.group), checked_topic(request.topic)
        if not request.entries:
            raise CallRefusedError(Code.BAD_REQUEST, "there is nothing to acknowledge")
        outcomes = await asyncio.gather(
            *(
                self._ack(call, group, topic, entry.receipt_handle, entry.lite_topic)
                for entry in request.entries
            )
        )
        response = self._protos.AckMessageResponse()
        for entry, (code, text) in zip(request.entries, outcomes, strict=True):
            response.entries.add(
                message_id=entry.message_id,
                receipt_handle=entry.receipt_handle,
                status=self._protos.Status(code=code, message=text),
            )
        fill_common(response)
        return response

    async def _ack(
        self, call: GrpcCall, group: str, topic: str, text: str, lite: str
    ) -> tuple[Code, str]:
        try:
            handle = Handle(text, group, topic, lite)
        except CallRefusedError as refused:
            return refused.code, str(refused)
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=handle.topic,
            queue_id=handle.of_pop.queue_id,
            extra_info=text,
            offset=handle.of_pop.offset,
        )
        answer = await call.ask(RequestCode.ACK_MESSAGE, header.fields())
        code = _code(answer)
        return code, "OK" if code == Code.OK else answer.remark or ""

    async def change(self, call: GrpcCall, request: Any) -> Any:
        """Answer a ChangeInvisibleDurationRequest. Raises CallRefusedError."""
        group, topic = checked_group(request.group), checked_topic(request.topic)
        milliseconds = request.invisible_duration.ToMilliseconds()
        check_invisible(milliseconds, 0)
        handle = Handle(request.receipt_handle, group, topic, request.lite_topic)
        changed = await self._change(call, handle, milliseconds, suspend=request.suspend)
        response = self._protos.ChangeInvisibleDurationResponse(receipt_handle=changed)
        response.status.code, response.status.message = Code.OK, "OK"
        return response

    async def _change(
        self, call: GrpcCall, handle: Handle, milliseconds: int, *, suspend: bool = False
    ) -> str:
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=handle.group,
            topic=handle.topic,
            queue_id=handle.of_pop.queue_id,
            extra_info=handle.text,
            offset=handle.of_pop.offset,
            invisible_time=milliseconds,
            suspend=suspend,
        )
        answer = await call.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.fields())
        _check(answer)
        return handle.changed(answer)

    async def forward(self, call: GrpcCall, request: Any) -> Any:
        """Answer a ForwardMessageToDeadLetterQueueRequest. Raises CallRefusedError.

        The handle is renewed first, so one that is not valid copies nothing.
        """
        group, topic = checked_group(request.group), checked_topic(request.topic)
        lite = request.lite_topic
        handle = Handle(request.receipt_handle, group, topic, lite)
        held = Handle(await self._change(call, handle, RENEWED_MS), group, topic, lite)
        header = ConsumerSendMsgBackRequestHeader(
            offset=held.place,
            group=group,
            delay_level=_DEAD,
            origin_msg_id=request.message_id,
            origin_topic=topic,
            max_reconsume_times=0,
        )
        _check(await call.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header.fields()))
        code, text = await self._ack(call, group, topic, held.text, lite)
        if code != Code.OK:
            raise CallRefusedError(code, text)
        response = self._protos.ForwardMessageToDeadLetterQueueResponse()
        response.status.code, response.status.message = Code.OK, "OK"
        return response


def fill_common(response: Any) -> None:
    """Fill in the status of a response with many: theirs, if all have the same.

    Users look for the name of INVALID_RECEIPT_HANDLE in the text, as RocketMQ's proxy has it.
    """
    statuses = [entry.status for entry in response.entries]
    if len(statuses) == 1 and statuses[0].code != Code.INVALID_RECEIPT_HANDLE:
        response.status.CopyFrom(statuses[0])
        return
    codes = {status.code for status in statuses}
    code = Code(codes.pop()) if len(codes) == 1 else Code.MULTIPLE_RESULTS
    response.status.code, response.status.message = code, code.name


def _code(answer: RemotingCommand) -> Code:
    return Code(code_of_settling(answer.code))


def _check(answer: RemotingCommand) -> None:
    code = _code(answer)
    if code != Code.OK:
        raise CallRefusedError(code, answer.remark or "")
