from typing import final

from congreve.broker.quotas.quota_table import QuotaTable

BUSY_REMARK: str
REST_S: float

@final
class SendQuota:
    def __init__(self, table: QuotaTable) -> None: ...
