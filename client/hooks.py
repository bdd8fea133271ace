"""What may look at every send (RocketMQ: SendMessageHook, EndTransactionHook)."""

import msgspec

from congreve.client.message import Message, MessageQueue, SendResult
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
