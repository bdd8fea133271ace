from typing import Self, final

from congreve.broker.quotas.quota_table import QuotaTable

WATCHER_OF_LOOP: int

def watcher_of_lane(number: int) -> int: ...

@final
class LanePolling:
    def __new__(cls, quotas: QuotaTable) -> Self: ...
    def __len__(self) -> int: ...
