from typing import final

from congreve.broker.accounts.account_table import AccountTable

@final
class CallAccounts:
    def __init__(self, table: AccountTable | None) -> None: ...

def producer_of(
    accounts: CallAccounts, authorization: bytes, date_time: bytes, topic: bytes
) -> bytes | None: ...
