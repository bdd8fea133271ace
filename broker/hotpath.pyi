from collections.abc import Callable
from typing import final

from congreve.broker.delaypath import DelayPath
from congreve.broker.durability import DurabilityGate
from congreve.broker.hotsettings import HotPathSettings
from congreve.broker.pullpath import PullPath
from congreve.broker.topictable import TopicTable
from congreve.broker.transactionpath import TransactionPath
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.remoting.inbox import FrameSink

@final
class HotPath(FrameSink):
    """Serves ordinary sends and pulls of whole chunks; hands every other frame to the handlers."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        gate: DurabilityGate,
        arrived: Callable[[ConsumeQueue], None],
        pulls: PullPath,
        transactions: TransactionPath,
        delays: DelayPath,
        settings: HotPathSettings,
    ) -> None:
        """`arrived` hears, behind each chunk, of queues that got entries: those that are watched,
        and those of messages that wait."""
    @property
    def put_messages(self) -> int:
        """Messages appended here, batches' members included."""
    @property
    def put_bytes(self) -> int: ...
    @property
    def put_batches(self) -> int: ...
    def set_store_host(self, host: bytes) -> None:
        """What records and message ids name: 4 or 16 address bytes, then the port as i32."""
