from typing import final

from congreve.broker.pull.processor import PullMessageProcessor
from congreve.engine.store import MessageStore

@final
class PullPath:
    def __init__(self, store: MessageStore, pulls: PullMessageProcessor) -> None: ...
    def release_segments(self) -> None: ...
