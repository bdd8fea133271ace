"""Hooks around sends and listener calls (RocketMQ: SendMessageHook, EndTransactionHook,
ConsumeMessageHook)."""

from enum import IntEnum
from typing import Any

import msgspec

from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.outgoing import Outgoing
from congreve.client.results import SendResult


class SendContext(msgspec.Struct, kw_only=True):
    """One attempt to send (RocketMQ: SendMessageContext). After it `result` or `error` is set,
    neither for a one-way send.

    Times are seconds, `began_at` since 1970; a batch has `outgoing.messages`. `notes` belong
    to the hooks, from before_send() to after_send().
    """

    group: str
    outgoing: Outgoing
    queue: MessageQueue
    address: str
    began_at: float
    seconds: float = 0.0
    oneway: bool = False
    region: str | None = None
    trace_on: bool = True
    result: SendResult | None = None
    error: BaseException | None = None
    notes: dict[object, Any] = {}


class EndContext(msgspec.Struct, kw_only=True):
    """The end of a transaction as reported to the broker (RocketMQ: EndTransactionContext):
    `state` is TransactionState's value."""

    group: str
    message: Message
    sent: SendResult
    state: int
    address: str
    began_at: float


class SendHook:
    """Base class of send hooks; override what you need. Methods run in the event loop and must not
    block.

    An exception of a hook ends the send, so that a hook can forbid it. (RocketMQ: SendMessageHook.)
    """

    each_of_many = False
    """Whether prepare() gets each message of send_many(), which is then as slow as send_batch().
    Otherwise it gets one message, whose properties all messages share."""

    def prepare(self, message: Message) -> Message:
        """Called before a message is checked; returns that message, or a changed copy to send
        instead."""
        return message

    def before_send(self, context: SendContext) -> None:
        """Called before each attempt."""

    def after_send(self, context: SendContext) -> None:
        """Called after each attempt, including a cancelled one."""

    def after_end(self, context: EndContext) -> None:
        """Called after the outcome of a transaction was reported to a broker, except in answers
        to its checks."""

    async def start(self) -> None:
        """Called when the producer starts."""

    async def stop(self) -> None:
        """Called when the producer has sent its last message."""


class ConsumeOutcome(IntEnum):
    """How a listener call ended (RocketMQ: ConsumeReturnType)."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    FAILED = 4


class ConsumeContext(msgspec.Struct, kw_only=True):
    """One listener call, or the work on a message in an iteration (RocketMQ:
    ConsumeMessageContext). Times are seconds, `began_at` since 1970.

    A program leaves an iteration without notice: hooks must not set context variables for
    `in_iteration`. `notes` belong to the hooks, from before_consume() to after_consume(). `outcome`
    is None until the work is over, and when it was cancelled.
    """

    group: str
    messages: list[ReceivedMessage]
    began_at: float
    seconds: float = 0.0
    outcome: ConsumeOutcome | None = None
    error: Exception | None = None
    in_iteration: bool = False
    notes: dict[object, Any] = {}


class ReceiveContext(msgspec.Struct, kw_only=True):
    """A pull or poll that returned messages; times are seconds, `began_at` since 1970."""

    group: str
    messages: list[ReceivedMessage]
    began_at: float
    seconds: float


class ConsumeHook:
    """Base class of consume hooks; override what you need. Methods run where the listener runs: in
    the event loop for ``async def``, in its thread for ``def``.

    An exception of before_consume() counts as the listener's failure, one of the other methods only
    goes to the log.
    (RocketMQ: ConsumeMessageHook.)
    """

    def before_consume(self, context: ConsumeContext) -> None:
        """Called before the listener."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Called after the listener."""

    def after_receive(self, context: ReceiveContext) -> None:
        """Called after a poll of a LitePullConsumer, or a pull, that returned messages."""

    async def start(self) -> None:
        """Called when the consumer starts."""

    async def stop(self) -> None:
        """Called after the last listener call."""
