from typing import final

from congreve.broker.delay.fast import DelayPath
from congreve.broker.quotas.send_quota import SendQuota
from congreve.broker.requests.settings import FastPathSettings
from congreve.broker.requests.topic_table import TopicTable
from congreve.broker.transaction.fast import TransactionPath
from congreve.engine.log.commit_log import CommitLog

@final
class SendPath:
    def __init__(
        self,
        log: CommitLog,
        topics: TopicTable,
        *,
        transactions: TransactionPath,
        delays: DelayPath,
        settings: FastPathSettings,
        quota: SendQuota,
    ) -> None: ...
    @property
    def put_messages(self) -> int: ...
    @property
    def put_bytes(self) -> int: ...
    @property
    def put_batches(self) -> int: ...
    @property
    def holds(self) -> int: ...
