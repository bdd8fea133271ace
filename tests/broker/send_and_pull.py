"""The processors of sends and pulls over a real store, without a network."""

from unittest.mock import AsyncMock

from congreve.base.clock import ManualClock
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.error_responses import answer_errors
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.pull.processor import PullMessageProcessor
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.broker.send.processor import SendMessageProcessor
from congreve.broker.send.send_back_processor import SendBackProcessor
from congreve.broker.transaction.service import TransactionService
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.property_codec import encode_properties
from congreve.records.record import decode_record
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)

#: Where the body begins in a record of IPv4 hosts.
BODY_AT = 88


class Bench:
    """Send and pull processors over a real store, without a network."""

    def __init__(self, root: str, connection, **settings) -> None:
        self.connection = connection
        self.config = BrokerConfig(
            broker_name="b",
            broker_cluster_name="C",
            broker_ip1="127.0.0.1",
            store=StoreConfig(
                root_dir=root,
                flush_disk_type="ASYNC_FLUSH",
                mapped_file_size_commit_log=16 << 20,
                max_hash_slot_num=1000,
                max_index_num=4000,
            ),
            **settings,
        )
        self.clock = ManualClock(1_700_000_000_000)
        self.store = MessageStore(self.config.store, clock=self.clock)
        self.store.start()
        self.store.first_files.is_missing = lambda *_: False  # no answer waits for a thread
        metadata = Metadata(self.config, self.clock, Pieces())
        self.topics, self.groups = metadata.topics, metadata.groups
        self.offsets = metadata.offsets
        self.consumers = ConsumerManager(BrokerConfig(), lambda *_: None)
        self.stats = BrokerStats(self.clock, lambda: self.store.queues)
        self.group_commit = GroupCommit(self.config)
        self.pulls = PullMessageProcessor(
            config=self.config,
            metadata=metadata,
            consumers=self.consumers,
            store=self.store,
            stats=self.stats,
            clock=self.clock,
            quota=PullQuota(QuotaTable()),
        )
        sends = SendMessageProcessor(
            config=self.config,
            metadata=metadata,
            store=self.store,
            group_commit=self.group_commit,
            transactions=TransactionService(
                self.store, self.offsets, self.clock, lambda: self.config.store_host
            ),
            clock=self.clock,
            take_back=AsyncMock(),
            counts=lambda _: TopicCounts(),
            pick=lambda bound: bound - 1,
        )
        backs = SendBackProcessor(
            config=self.config,
            metadata=metadata,
            store=self.store,
            group_commit=self.group_commit,
            stats=self.stats,
            pick=lambda bound: bound - 1,
        )
        self.handlers = answer_errors(
            {**sends.handlers(), **backs.handlers(), **self.pulls.handlers()}
        )

    def ask(self, request: RemotingCommand) -> RemotingCommand | None:
        return self.handlers[request.code](request, self.connection)

    def send(self, body: bytes = b"hello", *, code: int = 310, **fields) -> RemotingCommand:
        return self.ask(send_request(body, code=code, **fields))

    def pull(self, **fields) -> RemotingCommand | None:
        """The loop's answer to a pull that a lane has given back."""
        with self.pulls.given_back(0):
            return self.ask(pull_request(**fields))

    def stored(self, topic: str, queue_id: int = 0, offset: int = 0):
        entry = self.store.queues.get(topic, queue_id)[offset]
        return decode_record(self.store.read(entry[0]))


def text(**properties: str) -> str:
    return encode_properties(properties).decode()


def send_request(body: bytes = b"hello", *, code: int = 310, **fields) -> RemotingCommand:
    kind = SendMessageRequestHeader if code == 10 else SendMessageRequestHeaderV2
    values = {
        "producer_group": "P",
        "topic": "T",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_699_999_999_999,
        "flag": 7,
        "properties": text(TAGS="a", KEYS="k", WAIT="true"),
        "reconsume_times": 0,
    } | fields
    return RemotingCommand(code=code, opaque=5, ext_fields=kind(**values).fields(), body=body)


def pull_request(**fields) -> RemotingCommand:
    values = {
        "consumer_group": "G",
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "subscription": "*",
        "sub_version": 0,
    } | fields
    return RemotingCommand(
        code=11, opaque=6, ext_fields=PullMessageRequestHeader(**values).fields()
    )
