"""EndTransaction, and the ids by which clients name half messages (RocketMQ 5:
EndTransactionActivity, TransactionDataManager)."""

import re
from typing import Any, NamedTuple, Self

from congreve.broker.grpc.calls import GrpcCall
from congreve.broker.grpc.codecs.codes import Code, code_of
from congreve.broker.grpc.errors import CallRefusedError
from congreve.broker.grpc.names import checked_topic
from congreve.records.message.flags import SysFlag
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import EndTransactionRequestHeader

# Numbers of definition.proto.
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


class Transactions:
    """Ends half messages (RocketMQ 5: EndTransactionActivity)."""

    def __init__(self, protos: Any) -> None:
        self._protos = protos

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
