from typing import final

from congreve.broker.pull.pull_table import PullTable
from congreve.engine.store import MessageStore

@final
class LanePulls:
    @property
    def answered(self) -> int: ...
    def __init__(self, store: MessageStore, table: PullTable) -> None: ...
