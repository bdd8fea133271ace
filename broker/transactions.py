"""All that a broker does for transactions, put together: recovery, ends, checks, progress."""

from pathlib import Path

import msgspec

from congreve.broker.config import BrokerConfig
from congreve.broker.durability import DurabilityGate
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.producers import ProducerManager
from congreve.broker.statewriter import StateWriter
from congreve.broker.topics import TopicConfigManager
from congreve.broker.topictable import TopicTable
from congreve.broker.transactioncheck import TransactionCheckService
from congreve.broker.transactionend import EndTransactionProcessor
from congreve.broker.transactionpath import TransactionPath
from congreve.broker.transactionrecovery import TransactionRecovery
from congreve.broker.transactionservice import TransactionService
from congreve.engine.clock import Clock
from congreve.engine.statefile import StateFile
from congreve.engine.store import MessageStore
from congreve.remoting import fastjson
from congreve.remoting.body import Body


class TransactionChecks(Body):
    """Content of transactionChecks.json: half offset -> how often its producers were asked."""

    checks: dict[int, int] = msgspec.field(default_factory=dict)


class Transactions:
    """One broker's transactions; `service` is for those who store half messages."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicConfigManager,
        producers: ProducerManager,
        offsets: ConsumerOffsetManager,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._asked: dict[int, int] = {}
        self.service = TransactionService(store, offsets, clock, lambda: config.store_host)
        self._recovery = TransactionRecovery(store, offsets, self.service)
        self._checks = TransactionCheckService(
            config=config,
            topics=topics,
            producers=producers,
            store=store,
            service=self.service,
            clock=clock,
            asked=self._asked,
        )
        # The reference does not know this file: it lies where our own state does.
        self._file = StateFile(str(Path(config.store.own_dir) / "transactionChecks.json"))
        self._writer = StateWriter(self._file, lambda: TransactionChecks(checks=dict(self._asked)))
        self._saved: dict[int, int] = {}
        self._path: TransactionPath | None = None

    def processor(self, gate: DurabilityGate) -> EndTransactionProcessor:
        """Who serves the requests of producers and operators."""
        return EndTransactionProcessor(
            config=self._config, store=self._store, gate=gate, service=self.service
        )

    def hot_path(self, topics: TopicTable) -> TransactionPath:
        """What serves ordinary half messages and ends without Python; the store is open."""
        self._path = TransactionPath(
            self._store, topics, self.service.window, self._config.broker_cluster_name
        )
        self.config_changed()
        return self._path

    def config_changed(self) -> None:
        """Follow rejectTransactionMessage and brokerRole."""
        if self._path is not None:
            self._path.takes_half_messages = not self._config.reject_transaction_message
            self._path.ends_transactions = not self._config.is_slave

    def load(self) -> None:
        """From an opened store, with the consumer offsets loaded; before the first request."""
        self._file.load(self._load_checks)
        self._recovery.run()

    def start(self) -> None:
        """Check from now on; a slave leaves that to its master."""
        if not self._config.is_slave:
            self._checks.start()

    async def stop(self) -> None:
        """No more checks; what is to be remembered is on disk when it returns."""
        await self._checks.stop()
        self.save()
        await self._writer.settled()

    def save(self) -> None:
        """Note how far transactions are ended, now and then."""
        self.service.save_progress()
        if self._asked != self._saved:
            self._saved = dict(self._asked)
            self._writer.changed()

    def _load_checks(self, text: str) -> None:
        self._asked.update(TransactionChecks.from_tree(fastjson.loads(text)).checks)
        self._saved = dict(self._asked)
