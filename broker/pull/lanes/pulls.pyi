from typing import final

from congreve.broker.pull.lanes.polling import LanePolling
from congreve.broker.pull.lanes.pull_plan import PullPlans
from congreve.broker.pull.lanes.table import LanePullTable
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.engine.store import MessageStore

SERVE_AGAIN_KIND: int

@final
class LanePulls:
    @property
    def answered(self) -> int: ...
    @property
    def table(self) -> LanePullTable: ...
    @property
    def polling(self) -> LanePolling: ...
    def __init__(
        self,
        store: MessageStore,
        plans: PullPlans,
        quotas: QuotaTable,
        *,
        watcher: int,
        ended_kind: int,
        unreadable_kind: int,
        waiting_bytes_max: int,
    ) -> None: ...
