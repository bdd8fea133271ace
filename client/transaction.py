"""Messages that exist only if the work that belongs to them is done (RocketMQ:
TransactionMQProducer, DefaultMQProducerImpl)."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Any

import msgspec

from congreve.client.checks import check_message
from congreve.client.errors import ClientError
from congreve.client.hooks import EndContext
from congreve.client.logs import Log
from congreve.client.message import (
    Message,
    MessageQueue,
    ReceivedMessage,
    SendResult,
    SendStatus,
)
from congreve.client.producer import Producer
from congreve.client.received import PulledRecords
from congreve.errors import CongreveError
from congreve.records.errors import RecordError
from congreve.records.flags import SysFlag
from congreve.records.properties import PRODUCER_GROUP, TRANSACTION_PREPARED
from congreve.records.record import parse_offset_message_id
from congreve.remoting.codes import LanguageCode, RequestCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)

log = Log(__name__)

CHECKS_WAITING = 2_000
"""Questions of brokers that may wait for the check; more are dropped, and asked again later."""


class TransactionState(IntEnum):
    """What became of the local work; the values are those of the request."""

    UNKNOWN = 0
    COMMIT = int(SysFlag.TRANSACTION_COMMIT)
    ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


class TransactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How the message was prepared, and what the broker was told to do with it."""

    sent: SendResult
    state: TransactionState


Execute = Callable[[Message, SendResult], TransactionState | Awaitable[TransactionState]]
"""Does the local work; a message whose work raises is rolled back."""
Check = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Tells a broker that lost the outcome what it was."""


class TransactionProducer(Producer):
    """Prepares a message, does the local work, then commits or rolls back.

    ``async with TransactionProducer(namesrv, group="g", check=check) as producer``. A broker that
    did not hear the outcome asks any producer of the group: `check` answers, one question at a
    time.
    """

    def __init__(self, namesrv: str, *, group: str, check: Check, **settings: Any) -> None:
        self._check = check
        self._questions: asyncio.Queue[tuple[RemotingCommand, Connection]] = asyncio.Queue(
            CHECKS_WAITING
        )
        super().__init__(namesrv, group=group, **settings)

    async def start(self) -> None:
        """Begin. Raises ClientStateError."""
        await super().start()
        self._tasks.append(asyncio.create_task(self._answer_questions()))

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Prepare a message, run `execute`, and tell the broker how it ended.

        Where preparing was not wholly confirmed, `execute` is not run and the message is rolled
        back. What `execute` raises is raised, after the message was rolled back; when it is
        cancelled the outcome is unknown, and the broker will ask. Raises as send() does.
        """
        seconds = self._seconds(timeout_s)
        check_message(message, self.max_message_size)
        message = msgspec.structs.replace(message, delay_level=0)
        system = {TRANSACTION_PREPARED: "true", PRODUCER_GROUP: self.group}
        outgoing = self._prepare(message, system=system)
        outgoing.sys_flag |= SysFlag.TRANSACTION_PREPARED
        sent = await self._sender.send(outgoing, None, None, seconds)
        state = TransactionState.ROLLBACK
        try:
            if sent.status is SendStatus.SEND_OK:
                state = TransactionState(await _outcome(execute(message, sent)))
        except asyncio.CancelledError:
            state = TransactionState.UNKNOWN
            raise
        finally:
            await asyncio.shield(self._end(message, sent, state))
        return TransactionResult(sent=self._seen(sent), state=state)

    async def _end(self, message: Message, sent: SendResult, state: TransactionState) -> None:
        """Tell the broker; if that fails it will ask."""
        _, offset = parse_offset_message_id(sent.offset_message_id)
        header = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=offset,
            commit_or_rollback=int(state),
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id,
        )
        try:
            address = self.routes.address(sent.queue.broker_name)
            await self.tell(address, RequestCode.END_TRANSACTION, header.fields())
        except CongreveError as error:
            log.warning("broker is not told how it ended", message_id=sent.message_id, error=error)
            return
        for hook in self.hooks:
            hook.after_end(
                EndContext(
                    group=self.group,
                    message=message,
                    sent=sent,
                    state=int(state),
                    address=address,
                    began_at=time.time(),
                )
            )

    def _handlers(self) -> Mapping[int, Handler]:
        return {**super()._handlers(), RequestCode.CHECK_TRANSACTION_STATE: self._asked}

    def _asked(self, request: RemotingCommand, connection: Connection) -> None:
        if self._questions.full():
            log.warning("too many checks wait, one is dropped", waiting=CHECKS_WAITING)
        else:
            self._questions.put_nowait((request, connection))

    async def _answer_questions(self) -> None:
        while True:
            request, connection = await self._questions.get()
            try:
                await self._answer(request, connection)
            except CongreveError as error:
                log.warning("check not answered", connection=connection, error=error)

    async def _answer(self, request: RemotingCommand, connection: Connection) -> None:
        header = CheckTransactionStateRequestHeader.read(request)
        message = _half_message(request.body, self.namespace)
        try:
            state = TransactionState(await _outcome(self._check(message)))
        except Exception:
            log.exception("check failed: unknown", message_id=message.message_id)
            state = TransactionState.UNKNOWN
        end = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=int(state),
            msg_id=message.message_id,
            from_transaction_check=True,
            transaction_id=header.transaction_id,
        )
        connection.oneway(
            RemotingCommand(
                code=RequestCode.END_TRANSACTION,
                language=LanguageCode.PYTHON,
                ext_fields=end.fields(),
            )
        )


def _half_message(body: bytes, namespace: str | None) -> ReceivedMessage:
    """The message that a broker asks about; it shows the topic and queue that it is for."""
    nowhere = MessageQueue(topic="", broker_name="", queue_id=0)
    try:
        (message,) = PulledRecords(body, namespace=namespace).messages(nowhere)
    except (RecordError, ValueError) as error:
        raise ClientError(f"the half message of a check: {error}") from error
    return message


async def _outcome(
    found: TransactionState | Awaitable[TransactionState],
) -> TransactionState:
    return await found if inspect.isawaitable(found) else found
