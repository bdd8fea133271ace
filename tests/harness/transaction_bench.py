"""Transactions over a real store, without a network; it can be stopped, killed and reopened."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock

from congreve.base.clock import ManualClock
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.error_responses import answer_errors
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.group.clients import ClientChannel
from congreve.broker.group.producers import ProducerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.broker.send.processor import SendMessageProcessor
from congreve.broker.transaction.transactions import Transactions
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.message.property_codec import encode_properties
from congreve.records.record import decode_record, parse_offset_message_id
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
)
from harness.stores.killed_store import copy_running

BORN = 1_700_000_000_000
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class TransactionBench:
    """A broker's transactions; `connection` stands for every client's."""

    def __init__(self, root: Path, connection, **settings) -> None:
        self.root = root
        self.connection = connection
        self.settings = settings
        self.clock = ManualClock(BORN)
        self.offsets = ConsumerOffsetManager(BrokerConfig())
        self.open(root)

    def open(self, root: Path) -> None:
        """Open the store and start the transactions."""
        self.config = BrokerConfig(
            broker_name="b",
            broker_cluster_name="C",
            broker_ip1="127.0.0.1",
            store=StoreConfig(
                root_dir=str(root),
                flush_disk_type="ASYNC_FLUSH",
                mapped_file_size_commit_log=self.settings.get("segment", 1 << 20),
                max_hash_slot_num=1000,
                max_index_num=4000,
            ),
            **{k: v for k, v in self.settings.items() if k != "segment"},
        )
        self.store = MessageStore(self.config.store, clock=self.clock)
        self.store.start()
        self.store.first_files.is_missing = lambda *_: False  # no answer waits for a thread
        metadata = Metadata(self.config, self.clock, Pieces())
        metadata.offsets = self.offsets
        self.topics = metadata.topics
        self.producers = ProducerManager(BrokerConfig(), self.clock)
        self.transactions = Transactions(
            config=self.config,
            metadata=metadata,
            producers=self.producers,
            store=self.store,
            clock=self.clock,
        )
        self.transactions.load()
        group_commit = GroupCommit(self.config)
        counts = TopicCounts()
        sends = SendMessageProcessor(
            config=self.config,
            metadata=metadata,
            store=self.store,
            group_commit=group_commit,
            transactions=self.transactions.service,
            clock=self.clock,
            take_back=AsyncMock(),
            counts=lambda _: counts,
        )
        self.handlers = answer_errors(
            {
                **sends.handlers(),
                **self.transactions.processor(group_commit, lambda _: counts).handlers(),
            }
        )

    def close(self) -> None:
        """Stop the transactions and close the store."""
        self.store.close()

    def restart(self) -> None:
        """Restart cleanly; consumerOffset.json and the counts of checks survive."""
        asyncio.run(self.transactions.stop())
        self.store.close()
        self.open(self.root)

    def killed(self, cut: Callable[[Path], None] = lambda _: None, *, forget: bool = False) -> None:
        """Restart as after a kill: with the files as they are, and the last saved offsets.

        `cut` may damage the copy; `forget` also loses the offsets of the transactions.
        """
        copy = self.root.with_name(self.root.name + "-killed")
        copy_running(self.root, copy)
        self.store.close()
        (copy / "abort").touch()
        cut(copy)
        if forget:
            self.offsets = ConsumerOffsetManager(BrokerConfig())
        self.root = copy
        self.open(copy)

    # --- producers

    def ask(self, request: RemotingCommand) -> RemotingCommand | None:
        """The answer to a request."""
        return self.handlers[request.code](request, self.connection)

    def producer(self, connection, group: str = "P") -> None:
        """Send a producer's heartbeat."""
        self.producers.register(group, ClientChannel(connection, f"client-{group}", "JAVA", 401))

    def send_half(self, body: bytes = b"hello", *, born: int | None = None, **properties):
        """Send a half message for queue 2 of topic T and return the answer."""
        stored = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": f"key-{body!r}", "TAGS": "a"}
        stored = {k: v for k, v in (stored | properties).items() if v is not None}
        header = SendMessageRequestHeaderV2(
            producer_group="P",
            topic="T",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=2,
            sys_flag=4 if "TRAN_MSG" in stored else 0,
            born_timestamp=self.clock.now() if born is None else born,
            flag=7,
            properties=encode_properties(stored).decode(),
            reconsume_times=0,
        )
        return self.ask(RemotingCommand(code=310, ext_fields=header.fields(), body=body))

    def end(self, half: RemotingCommand, how: int = COMMIT, **fields) -> RemotingCommand | None:
        """Send END_TRANSACTION as a client does after the answer to its half message."""
        values = {
            "producer_group": "P",
            "tran_state_table_offset": int(half.ext_fields["queueOffset"]),
            "commit_log_offset": parse_offset_message_id(half.ext_fields["msgId"])[1],
            "commit_or_rollback": how,
            "msg_id": "u",
        } | fields
        header = EndTransactionRequestHeader(**values)
        return self.ask(RemotingCommand(code=37, ext_fields=header.fields()))

    def check(self) -> list[RemotingCommand]:
        """Run one round of checks; returns the requests to `connection`."""
        before = len(self.connection.asked)
        asyncio.run(self.transactions._checks.check())
        return self.connection.asked[before:]

    def answer_check(self, asked: RemotingCommand, how: int) -> RemotingCommand | None:
        """Answer a check."""
        fields = asked.ext_fields
        header = EndTransactionRequestHeader(
            producer_group="P",
            tran_state_table_offset=int(fields["tranStateTableOffset"]),
            commit_log_offset=int(fields["commitLogOffset"]),
            commit_or_rollback=how,
            msg_id=fields["msgId"],
            from_transaction_check=True,
        )
        return self.ask(RemotingCommand(code=37, ext_fields=header.fields()))

    # --- stored messages

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """The records of a topic's queue."""
        queue = self.store.queues.get(topic, queue_id)
        return [decode_record(self.store.read(queue[i][0])) for i in range(queue.min, queue.max)]

    def visible(self) -> list[bytes]:
        """Bodies that consumers of T can read."""
        return [record.body for record in self.records("T", 2)]
