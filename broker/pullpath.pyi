from typing import final

from congreve.broker.pull import PullMessageProcessor
from congreve.engine.store import MessageStore

@final
class PullPath:
    """What the hot path does with pulls; `pull.py` has the rules."""

    def __init__(self, store: MessageStore, pulls: PullMessageProcessor) -> None: ...
    def release_segments(self) -> None:
        """Hold no segment beyond the next pull: what retention deletes is then given back."""
