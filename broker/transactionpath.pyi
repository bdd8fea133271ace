from typing import final

from congreve.broker.topictable import TopicTable
from congreve.broker.transactionwindow import HalfWindow
from congreve.engine.store import MessageStore

@final
class TransactionPath:
    """The compiled part of transactions, for the hot path: half messages and their ends.

    It knows the ordinary case only; whatever is odd about a request is left to SendMessageProcessor
    and EndTransactionProcessor.
    """

    takes_half_messages: bool
    """False: every half message goes to the Python handler, which refuses it."""
    ends_transactions: bool
    """False: the same for their ends."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, window: HalfWindow, cluster: str
    ) -> None: ...
    def set_store_host(self, host: bytes) -> None:
        """What op records name: 4 or 16 address bytes, then the port as i32."""
    def find_queues(self) -> None:
        """Look the queues up again: a Python handler may have made or deleted them."""
