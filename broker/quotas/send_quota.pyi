from typing import final

from congreve.broker.quotas.quota_table import QuotaTable

BUSY_REMARK: str

@final
class SendQuota:
    def __init__(self, table: QuotaTable) -> None: ...
