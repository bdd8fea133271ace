"""What may look at every send and every call of a listener (RocketMQ: SendMessageHook,
EndTransactionHook, ConsumeMessageHook)."""

from enum import IntEnum
from typing import Any

import msgspec

from congreve.client.message import Message, MessageQueue, ReceivedMessage, SendResult
from congreve.client.outgoing import Outgoing


class SendContext(msgspec.Struct, kw_only=True):
    """One attempt to send. `result` or `error` is there when it is over, neither for a one-way.

    Times are seconds, `began_at` since 1970; `outgoing.message` is None for a batch.
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


class EndContext(msgspec.Struct, kw_only=True):
    """The end of a transaction, as the broker was told it: `state` is TransactionState's value."""

    group: str
    message: Message
    sent: SendResult
    state: int
    address: str
    began_at: float


class SendHook:
    """Override what you need. Called in the event loop, so nothing here may block.

    What a hook raises ends the send, so that a hook can forbid it.
    """

    def prepare(self, message: Message) -> Message:
        """Before a message is checked: that message, or a changed copy to send instead."""
        return message

    def before_send(self, context: SendContext) -> None:
        """Before each attempt."""

    def after_send(self, context: SendContext) -> None:
        """After each attempt, also one that was cancelled."""

    def after_end(self, context: EndContext) -> None:
        """After a broker was told how a transaction ended (not for its checks)."""

    async def start(self) -> None:
        """The producer starts."""

    async def stop(self) -> None:
        """The producer has sent its last message."""


class ConsumeOutcome(IntEnum):
    """How a listener's call ended (RocketMQ: ConsumeReturnType)."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    FAILED = 4


class ConsumeContext(msgspec.Struct, kw_only=True):
    """One call of a listener. Times are seconds, `began_at` since 1970; `notes` are the hooks' own,
    from before_consume() to after_consume(). `outcome` is None until it is over or where it was
    cancelled."""

    group: str
    messages: list[ReceivedMessage]
    began_at: float
    seconds: float = 0.0
    outcome: ConsumeOutcome | None = None
    error: Exception | None = None
    notes: dict[object, Any] = {}


class ConsumeHook:
    """Override what you need. Called where the listener runs: in the event loop for ``async def``,
    in its thread for ``def``.

    What before_consume() raises counts as the listener's failure.
    """

    def before_consume(self, context: ConsumeContext) -> None:
        """Before the listener is called."""

    def after_consume(self, context: ConsumeContext) -> None:
        """After it."""

    async def start(self) -> None:
        """The consumer starts."""

    async def stop(self) -> None:
        """The consumer has called its listener for the last time."""
