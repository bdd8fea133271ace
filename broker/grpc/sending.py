"""SendMessage, RecallMessage and EndTransaction (RocketMQ 5: SendMessageActivity,
RecallMessageActivity, EndTransactionActivity)."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, NamedTuple, Self

from congreve.broker.grpc.codecs.codec import SEND_KIND
from congreve.broker.grpc.codecs.codes import Code, code_of
from congreve.broker.grpc.protocol.calls import REQUEST_MORE, GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import checked_topic
from congreve.broker.grpc.send import SendRules
from congreve.broker.grpc.settle import fill_common
from congreve.records.message.flags import SysFlag
from congreve.records.record import parse_offset_message_id
from congreve.remoting.messages.admin_headers import RecallMessageRequestHeader
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import EndTransactionRequestHeader

# Numbers of definition.proto.
_TRANSACTION = 4
_ENDS = {1: SysFlag.TRANSACTION_COMMIT, 2: SysFlag.TRANSACTION_ROLLBACK}
_SERVER_CHECK = 2
_ID = re.compile(r"([0-7][0-9A-F]{15})([0-7][0-9A-F]{15})")


class TransactionId(NamedTuple):
    """Where a half message is: in the log, and in the half queue.

    A client gets it as a text of 32 hex digits. So any broker that has the log can end the
    transaction, also after a restart. (RocketMQ 5: TransactionData.)
    """

    physical_offset: int
    queue_offset: int

    def encode(self) -> str:
        """The text for clients."""
        return f"{self.physical_offset:016X}{self.queue_offset:016X}"

    @classmethod
    def decode(cls, text: str) -> Self:
        """Raises CallRefusedError for another text."""
        found = _ID.fullmatch(text)
        if found is None:
            raise CallRefusedError(
                Code.INVALID_TRANSACTION_ID,
                f"the transaction id {text[:64]!r} is not one that a broker has given",
            )
        return cls(int(found[1], 16), int(found[2], 16))


class Sending:
    """Stores messages, recalls them, ends transactions (RocketMQ 5: ProducerProcessor)."""

    def __init__(self, rules: SendRules, protos: Any) -> None:
        self._rules = rules
        self._protos = protos

    def send(self, call: GrpcCall, request: Any) -> Coroutine[Any, Any, Any] | None:
        """Answer a SendMessageRequest; that of one message, which is no half message, gets the
        answer to the request that is made of it. Raises CallRefusedError.
        """
        if not request.messages:
            raise CallRefusedError(Code.MESSAGE_CORRUPTED, "no message to send")
        commands = [self._rules.command(message, call) for message in request.messages]
        if len(commands) > 1 or _is_half(request.messages[0]):
            return self._send_all(call, request.messages, commands)
        command = commands[0]
        command.opaque = call.stream
        call.sign(command)
        message_id = request.messages[0].system_properties.message_id
        call.answered_by_frame(SEND_KIND, message_id.encode())
        call.connection.serve(command, len(command.body) + REQUEST_MORE)
        return None

    async def _send_all(
        self, call: GrpcCall, messages: Any, commands: list[RemotingCommand]
    ) -> Any:
        """Each message is stored in its turn, and has its own outcome."""
        if any(message.topic != messages[0].topic for message in messages):
            raise CallRefusedError(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        answers = await asyncio.gather(
            *(call.ask(command.code, command.ext_fields, command.body) for command in commands)
        )
        response = self._protos.SendMessageResponse()
        codes = [Code(code_of(answer.code)) for answer in answers]
        for message, answer, code in zip(messages, answers, codes, strict=True):
            status = self._protos.Status(code=code, message=answer.remark or code.name)
            if code != Code.OK:
                response.entries.add(status=status)
                continue
            message_id, fields = message.system_properties.message_id, answer.ext_fields
            offset = int(fields.get("queueOffset", "0"))
            transaction_id = message_id
            if _is_half(message):
                _, place = parse_offset_message_id(fields["msgId"])
                transaction_id = TransactionId(place, offset).encode()
            response.entries.add(
                status=status,
                message_id=message_id,
                transaction_id=transaction_id,
                offset=offset,
                recall_handle=fields.get("recallHandle", ""),
            )
        fill_common(response)
        return response

    async def recall(self, call: GrpcCall, request: Any) -> Any:
        """Answer a RecallMessageRequest. Raises CallRefusedError."""
        topic = checked_topic(request.topic)
        header = RecallMessageRequestHeader(
            topic=topic, recall_handle=request.recall_handle, producer_group=topic
        )
        answer = await call.ask(RequestCode.RECALL_MESSAGE, header.fields())
        code = Code(code_of(answer.code))
        if code != Code.OK:
            raise CallRefusedError(code, answer.remark or "")
        response = self._protos.RecallMessageResponse(message_id=answer.ext_fields["msgId"])
        response.status.code, response.status.message = Code.OK, "OK"
        return response

    async def end(self, call: GrpcCall, request: Any) -> Any:
        """Answer an EndTransactionRequest when the end is stored. Raises CallRefusedError."""
        topic = checked_topic(request.topic)
        of = TransactionId.decode(request.transaction_id)
        response = self._protos.EndTransactionResponse()
        response.status.code, response.status.message = Code.OK, "OK"
        end = _ENDS.get(request.resolution)
        if end is None:  # the client does not know it yet
            return response
        header = EndTransactionRequestHeader(
            producer_group=topic,
            tran_state_table_offset=of.queue_offset,
            commit_log_offset=of.physical_offset,
            commit_or_rollback=int(end),
            msg_id=request.message_id,
            from_transaction_check=request.source == _SERVER_CHECK,
            transaction_id=request.transaction_id,
        )
        answer = await call.ask(RequestCode.END_TRANSACTION, header.fields())
        if answer.code != ResponseCode.SUCCESS:
            code = Code(code_of(answer.code))
            if answer.code == ResponseCode.SYSTEM_ERROR:  # there is no such open transaction
                code = Code.INVALID_TRANSACTION_ID
            raise CallRefusedError(code, answer.remark or "")
        return response


def _is_half(message: Any) -> bool:
    return bool(message.system_properties.message_type == _TRANSACTION)
