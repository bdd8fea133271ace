from typing import final

from congreve.broker.pop.lanes.acks import LaneAcks
from congreve.broker.pop.lanes.journal_writer import PopJournalWriter
from congreve.broker.pop.lanes.pops import LanePops
from congreve.broker.pull.lanes.polling import LanePolling
from congreve.broker.quotas.quota_table import QuotaTable

ACKNOWLEDGED_KIND: int
POPPED_KIND: int
DUE_SOONER_KIND: int
POPS_LOST_KIND: int

@final
class LanePopServer:
    def __init__(
        self,
        pops: LanePops,
        acks: LaneAcks,
        journal: PopJournalWriter,
        quotas: QuotaTable,
        *,
        watcher: int,
        waiting_bytes_max: int,
    ) -> None: ...
    @property
    def polling(self) -> LanePolling: ...
    @property
    def pops(self) -> LanePops: ...
