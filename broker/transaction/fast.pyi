from typing import final

from congreve.broker.requests.topic_table import TopicTable
from congreve.broker.transaction.window import HalfWindow
from congreve.engine.store import MessageStore

@final
class TransactionPath:
    takes_half_messages: bool
    ends_transactions: bool

    def __init__(
        self, store: MessageStore, topics: TopicTable, window: HalfWindow, cluster: str
    ) -> None: ...
    def set_store_host(self, host: bytes) -> None: ...
    def find_queues(self) -> None: ...
