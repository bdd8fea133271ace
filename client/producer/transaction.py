"""Sends messages that become visible only when the local work succeeds (RocketMQ:
TransactionMQProducer, DefaultMQProducerImpl)."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Unpack

import msgspec

from congreve.base.errors import CongreveError
from congreve.base.fields import Fields
from congreve.client.checks import check_message
from congreve.client.errors import BrokerError, ClientError, TransactionEndError
from congreve.client.hooks import EndContext
from congreve.client.logs import Log
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.producer.producer import Producer, ProducerOptions
from congreve.client.received import PulledRecords
from congreve.client.results import SendResult, SendStatus
from congreve.client.user_code import call_after, raise_unless_failure
from congreve.records.errors import RecordError
from congreve.records.message.flags import SysFlag
from congreve.records.message.properties import PRODUCER_GROUP, TRANSACTION_PREPARED
from congreve.records.record import parse_offset_message_id
from congreve.remoting.messages.codes import LanguageCode, RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

log = Log(__name__)

CHECKS_WAITING = 2_000
"""Maximum number of queued checks; further ones are dropped, and the broker repeats them later."""


class TransactionState(IntEnum):
    """The outcome of the local work (RocketMQ: LocalTransactionState); the values are those of
    END_TRANSACTION."""

    UNKNOWN = 0
    COMMIT = int(SysFlag.TRANSACTION_COMMIT)
    ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


class TransactionResult(Fields, msgspec.Struct, frozen=True, kw_only=True):
    """The result of sending the half message, and the outcome reported to the broker (RocketMQ:
    TransactionSendResult)."""

    sent: SendResult
    state: TransactionState


Execute = Callable[[Message, SendResult], TransactionState | Awaitable[TransactionState]]
"""Does the local work; when it raises, the message is rolled back."""
Check = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Returns the outcome of a transaction for a broker that did not receive it."""


class TransactionProducer(Producer):
    """Sends a half message, does the local work, then commits or rolls back.

    ``async with TransactionProducer(namesrv, group="g", check=check) as producer``. A broker that
    did not receive the outcome asks any producer of the group, which calls `check` for one
    transaction at a time (RocketMQ: TransactionMQProducer, TransactionListener).
    """

    def __init__(
        self, namesrv: str, *, group: str, check: Check, **options: Unpack[ProducerOptions]
    ) -> None:
        self._check = check
        self._checks: asyncio.Queue[tuple[RemotingCommand, Connection]] = asyncio.Queue(
            CHECKS_WAITING
        )
        super().__init__(namesrv, group=group, **options)

    async def start(self) -> None:
        """Start the producer. Raises ClientStateError when it was started before."""
        await super().start()
        self._begin_task("the answers to checks", self._run_checks)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Send a half message, run `execute`, and report the outcome to the broker.

        When the half message was not stored with SEND_OK, `execute` does not run and the message is
        rolled back. When `execute` raises, the message is rolled back and the exception propagates;
        when it is cancelled, the outcome is unknown and the broker will ask. The state is UNKNOWN
        when the broker did not answer the report. Raises as send() does, and TransactionEndError
        when the broker refuses the outcome: a check has ended the transaction meanwhile.
        """
        seconds = self.seconds(timeout_s)
        check_message(message, self.max_message_size)
        message = msgspec.structs.replace(message, delay_level=0, deliver_ms=0, priority=None)
        system = {TRANSACTION_PREPARED: "true", PRODUCER_GROUP: self.group}
        outgoing = self._prepare(message, system=system)
        outgoing.sys_flag |= SysFlag.TRANSACTION_PREPARED
        sent = await self._sender.send(outgoing, None, None, seconds)
        state = TransactionState.ROLLBACK
        try:
            if sent.status is SendStatus.SEND_OK:
                state = TransactionState(await _outcome(execute(message, sent)))
        except BaseException as error:
            is_unknown = isinstance(error, asyncio.CancelledError)
            state = TransactionState.UNKNOWN if is_unknown else TransactionState.ROLLBACK
            with suppress(TransactionEndError):
                await asyncio.shield(self._end(message, sent, state))
            raise
        state = await asyncio.shield(self._end(message, sent, state))
        return TransactionResult(sent=self._seen(sent), state=state)

    async def _end(
        self, message: Message, sent: SendResult, state: TransactionState
    ) -> TransactionState:
        """Report the outcome; returns UNKNOWN if no answer says that the broker has it: it asks
        later then. Raises TransactionEndError."""
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
            if state is TransactionState.UNKNOWN:  # RocketMQ does not answer this
                await self.oneway(address, RequestCode.END_TRANSACTION, header.fields())
            else:
                await self.demand(address, RequestCode.END_TRANSACTION, header.fields())
        except BrokerError as error:
            raise TransactionEndError(
                f"the broker refused the {state.name} of message {sent.message_id}, which a check"
                f" may have ended: {error}"
            ) from error
        except CongreveError as error:
            log.warning("transaction outcome not reported", message_id=sent.message_id, error=error)
            return TransactionState.UNKNOWN
        context = EndContext(
            group=self.group,
            message=message,
            sent=sent,
            state=int(state),
            address=address,
            began_at=time.time(),
        )
        call_after((hook.after_end for hook in self.hooks), context)
        return state

    def _handlers(self) -> Mapping[int, Handler]:
        return {**super()._handlers(), RequestCode.CHECK_TRANSACTION_STATE: self._queue_check}

    def _queue_check(self, request: RemotingCommand, connection: Connection) -> None:
        if self._checks.full():
            log.warning("too many queued checks, dropping one", waiting=CHECKS_WAITING)
        else:
            self._checks.put_nowait((request, connection))

    async def _run_checks(self) -> None:
        while True:
            request, connection = await self._checks.get()
            try:
                await self._answer(request, connection)
            except CongreveError as error:
                log.warning("check not answered", connection=connection, error=error)

    async def _answer(self, request: RemotingCommand, connection: Connection) -> None:
        header = CheckTransactionStateRequestHeader.read(request)
        message = _half_message(request.body, self.namespace)
        try:
            state = TransactionState(await _outcome(self._check(message)))
        except BaseException as error:
            raise_unless_failure(error)
            log.exception("check failed, answering unknown", message_id=message.message_id)
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
    """The half message that a broker asks about, with its real topic and queue."""
    nowhere = MessageQueue(topic="", broker_name="", queue_id=0)
    try:
        (message,) = PulledRecords(body, namespace=namespace).messages(nowhere)
    except (RecordError, ValueError) as error:
        raise ClientError(f"the half message of a check is damaged: {error}") from error
    return message


async def _outcome(
    found: TransactionState | Awaitable[TransactionState],
) -> TransactionState:
    return await found if inspect.isawaitable(found) else found
