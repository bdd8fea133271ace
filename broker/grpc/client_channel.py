"""What a broker asks a gRPC client, through its Telemetry (RocketMQ 5: GrpcClientChannel)."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.received import Received
from congreve.broker.grpc.sending import TransactionId
from congreve.records.message.message import Record, one_more
from congreve.records.record import decode_record
from congreve.remoting.errors import ConnectionLostError, RemotingError, RequestTimeoutError
from congreve.remoting.lanes.call import GrpcStatus
from congreve.remoting.messages.admin_bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    SubscriptionData,
)
from congreve.remoting.messages.admin_headers import GetConsumerRunningInfoRequestHeader
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import CheckTransactionStateRequestHeader

_RESULTS = {Code.OK: "CR_SUCCESS", Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL"}


class GrpcClientChannel:
    """The Telemetry of one client, as the connection that groups and transactions know.

    Notices of members and of offsets, which gRPC does not have, are left out: clients that pop need
    none. (RocketMQ 5: GrpcClientChannel.)
    """

    def __init__(self, call: GrpcCall, protos: Any) -> None:
        self._call = call
        self._protos = protos
        self._received = Received(protos)
        self._nonces = itertools.count(1)
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self.closed = False
        self.properties: dict[str, str] = {}
        """What tools show of the client (RocketMQ: ConsumerRunningInfo)."""
        self.subscriptions: list[SubscriptionData] = []

    def __repr__(self) -> str:
        return f"<Telemetry of {self._call.client_id} at {self._call.connection!r}>"

    @property
    def reading_paused(self) -> bool:
        """Whether the client does not read what it is sent."""
        return self._call.connection.reading_paused

    @property
    def peer(self) -> tuple[str, int]:
        """The client's address."""
        return self._call.connection.peer

    def close(self) -> None:
        """End the Telemetry; a client that is alive opens it again."""
        if not self.closed:
            self._call.end(GrpcStatus.UNAVAILABLE, "no heartbeat")

    def ended(self) -> None:
        """The Telemetry has ended."""
        self.closed = True
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectionLostError(f"{self!r} has ended"))

    def answered(self, nonce: str, command: Any) -> None:
        """Take what the client answers."""
        future = self._asked.get(nonce)
        if future is not None and not future.done():
            future.set_result(command)

    # --- requests of the broker

    def unsubscribe_lite(self, lite_topic: str) -> None:
        """Let the client forget its subscription to a lite topic."""
        telling = self._protos.TelemetryCommand()
        telling.notify_unsubscribe_lite_command.lite_topic = lite_topic
        self._tell(telling)

    def oneway(self, command: RemotingCommand) -> None:
        """Send what gRPC has a command for."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        header = CheckTransactionStateRequestHeader.read(command)
        half = decode_record(command.body)
        of = TransactionId(header.commit_log_offset, header.tran_state_table_offset)
        telling = self._protos.TelemetryCommand()
        telling.recover_orphaned_transaction_command.transaction_id = of.encode()
        telling.recover_orphaned_transaction_command.message.CopyFrom(self._message(half))
        self._tell(telling)

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The client's answer to a request of a tool. Raises RemotingError."""
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            header = GetConsumerRunningInfoRequestHeader.read(command)
            body = await self._running_info(with_threads=header.jstack_enable, timeout_s=timeout_s)
        elif command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            body = await self._consume(decode_record(command.body), timeout_s)
        else:
            raise RemotingError(f"{self!r}: gRPC has no request {command.code}")
        return RemotingCommand(code=ResponseCode.SUCCESS, body=body)

    async def _running_info(self, *, with_threads: bool, timeout_s: float) -> bytes:
        info = ConsumerRunningInfo(
            properties=dict(self.properties), subscription_set=self.subscriptions
        )
        if with_threads:

            def wanted(command: Any, nonce: str) -> None:
                command.print_thread_stack_trace_command.nonce = nonce

            answer = await self._ask(wanted, timeout_s)
            info.jstack = answer.thread_stack_trace.thread_stack_trace
        return info.encode()

    async def _consume(self, record: Record, timeout_s: float) -> bytes:
        def wanted(command: Any, nonce: str) -> None:
            command.verify_message_command.nonce = nonce
            command.verify_message_command.message.CopyFrom(self._message(record))

        loop = asyncio.get_running_loop()
        begun = loop.time()
        answer = await self._ask(wanted, timeout_s)
        return ConsumeMessageDirectlyResult(
            consume_result=_RESULTS.get(answer.status.code, "CR_LATER"),
            remark=answer.status.message,
            spent_time_mills=int((loop.time() - begun) * 1000),
        ).encode()

    async def _ask(self, fill: Callable[[Any, str], None], timeout_s: float) -> Any:
        """The command that answers another one, with its nonce."""
        nonce = str(next(self._nonces))
        command = self._protos.TelemetryCommand()
        fill(command, nonce)
        future = asyncio.get_running_loop().create_future()
        self._asked[nonce] = future
        try:
            self._tell(command)
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise RequestTimeoutError(f"{self!r} does not answer in {timeout_s:g} s") from None
        finally:
            del self._asked[nonce]

    def _tell(self, command: Any) -> None:
        if self.closed:
            raise ConnectionLostError(f"{self!r} has ended")
        command.status.code, command.status.message = Code.OK, "OK"
        self._call.reply(command.SerializeToString(), last=False)

    def _message(self, record: Record) -> Any:
        return self._received.message(record, "", one_more(record.reconsume_times))
