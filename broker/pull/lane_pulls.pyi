from typing import final

from congreve.broker.pull.lane_table import LanePullTable
from congreve.broker.pull.validated_pull import ValidatedPulls
from congreve.engine.store import MessageStore

@final
class LanePulls:
    @property
    def answered(self) -> int: ...
    @property
    def table(self) -> LanePullTable: ...
    def __init__(self, store: MessageStore, validated_pulls: ValidatedPulls) -> None: ...
