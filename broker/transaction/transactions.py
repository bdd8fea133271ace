"""All transactions of a broker: recovery, ends, checks, progress."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from congreve.base.clock import Clock
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.group.producers import ProducerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.state_writer import StateWriter
from congreve.broker.requests.topic_table import TopicTable
from congreve.broker.transaction.check import TransactionCheckService
from congreve.broker.transaction.end_processor import EndTransactionProcessor
from congreve.broker.transaction.fast import TransactionPath
from congreve.broker.transaction.recovery import TransactionRecovery
from congreve.broker.transaction.service import TransactionService
from congreve.engine.state.state_file import StateFile
from congreve.engine.store import MessageStore
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.body import Body


class TransactionChecks(Body):
    """Content of transactionChecks.json: number of checks by half offset."""

    checks: dict[int, int] = msgspec.field(default_factory=dict)


class Transactions:
    """One broker's transactions; `service` stores half messages.

    (RocketMQ: BrokerController.initialTransaction.)
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        producers: ProducerManager,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self.service = TransactionService(
            store,
            metadata.offsets,
            clock,
            lambda: config.store_host,
            metadata.topics.present_queue,
        )
        self._asked = self.service.asked
        self._recovery = TransactionRecovery(store, metadata.offsets, self.service)
        self._checks = TransactionCheckService(
            config=config,
            topics=metadata.topics,
            producers=producers,
            store=store,
            service=self.service,
            clock=clock,
        )
        # RocketMQ has no such file, so it is among Congreve's own state files.
        self._file = StateFile(
            str(Path(config.store.own_dir) / "transactionChecks.json"), files=store.files
        )
        self._writer = StateWriter(self._file, lambda: TransactionChecks(checks=dict(self._asked)))
        self._saved: dict[int, int] = {}
        self._paths: list[TransactionPath] = []

    @property
    def files(self) -> tuple[StateWriter, ...]:
        """The writer of transactionChecks.json."""
        return (self._writer,)

    def processor(
        self, group_commit: GroupCommit, counts: Callable[[str], TopicCounts]
    ) -> EndTransactionProcessor:
        """The processor of END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE.

        `counts` finds what is counted of a topic.
        """
        return EndTransactionProcessor(
            config=self._config,
            store=self._store,
            group_commit=group_commit,
            service=self.service,
            counts=counts,
            clock=self._clock,
        )

    def fast_path(self, topics: TopicTable) -> TransactionPath:
        """Build the compiled part of transactions for one thread; the store is open."""
        path = TransactionPath(
            self._store, topics, self.service.window, self._config.broker_cluster_name
        )
        self._paths.append(path)
        self.config_changed()
        return path

    def config_changed(self) -> None:
        """Follow rejectTransactionMessage and brokerRole."""
        for path in self._paths:
            path.takes_half_messages = not self._config.reject_transaction_message
            path.ends_transactions = not self._config.is_slave

    def load(self) -> None:
        """Recover from an open store, after loading offsets and before the first request.

        A slave leaves it to its master: recovery appends.
        """
        self._file.load(self._load_checks)
        if not self._config.is_slave:
            self._recovery.run()

    def start(self) -> None:
        """Start the checks; a slave leaves them to its master."""
        if not self._config.is_slave:
            self._checks.start()

    async def stop(self) -> None:
        """Stop the checks; the state is on disk when this returns."""
        await self._checks.stop()
        self.save()
        await self._writer.finish()

    def save(self) -> None:
        """Save the progress of transactions, and the number of checks; a slave has neither."""
        if self._config.is_slave:
            return
        self.service.save_progress()
        if self._asked != self._saved:
            self._saved = dict(self._asked)
            self._writer.changed()

    def _load_checks(self, text: str) -> None:
        self._asked.update(TransactionChecks.from_tree(fastjson.loads(text)).checks)
        self._saved = dict(self._asked)
