from typing import final

from congreve.broker.quota_limits import Names
from congreve.broker.quotas.quota_table import QuotaTable

@final
class HeldPlace: ...

def take_place(table: QuotaTable, names: Names, *, counts: bool) -> HeldPlace | None: ...
