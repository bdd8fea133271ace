from typing import final

from congreve.broker.accounts.account_table import AccountTable
from congreve.broker.delay.fast import DelayPath
from congreve.broker.figures.put_times import PutTimes
from congreve.broker.quotas.send_quota import SendQuota
from congreve.broker.requests.settings import FastPathSettings
from congreve.broker.requests.topic_table import TopicTable
from congreve.broker.send.fast import SendPath
from congreve.broker.transaction.fast import TransactionPath
from congreve.engine.store import MessageStore

@final
class FastPath:
    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        transactions: TransactionPath,
        delays: DelayPath,
        settings: FastPathSettings,
        quota: SendQuota,
        accounts: AccountTable | None = None,
    ) -> None: ...
    @property
    def sends(self) -> SendPath: ...
    @property
    def put_times(self) -> PutTimes: ...
    def set_store_host(self, host: bytes) -> None: ...
