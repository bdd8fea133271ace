from typing import final

from congreve.engine.store import MessageStore

@final
class DelayPath:
    def __init__(self, store: MessageStore, cluster: str, broker_name: str) -> None: ...
    def config_changed(self) -> None: ...
