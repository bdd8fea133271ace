from typing import final

from congreve.broker.pull.processor import PullMessageProcessor
from congreve.broker.pull.pull_table import PullTable
from congreve.engine.store import MessageStore

@final
class PullPath:
    def __init__(
        self, store: MessageStore, pulls: PullMessageProcessor, table: PullTable | None
    ) -> None: ...
    def release_segments(self) -> None: ...
