"""Replies: pushed to the requester, stored, and answered with the result."""

import asyncio
from pathlib import Path

import pytest

from congreve.base.clock import ManualClock
from congreve.base.steps import at_once
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.group.client_ids import ClientIds
from congreve.broker.group.clients import ClientChannel
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.send import reply_processor
from congreve.broker.send.reply_processor import ReplyMessageProcessor
from congreve.broker.send.shown_log import ShownLog
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.property_codec import decode_properties, encode_properties
from congreve.records.record import decode_record
from congreve.remoting.errors import RequestTimeoutError
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2

NOW = 1_700_000_000_000
TOPIC = "C_REPLY_TOPIC"
REPLY = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "TTL": "3000", "MSG_TYPE": "reply"}


class Bench:
    """The processor over a real store; `connection` is the responder's."""

    def __init__(self, root: Path, connection, **settings) -> None:
        self.connection = connection
        self.config = BrokerConfig(
            broker_name="b",
            broker_cluster_name="C",
            broker_ip1="127.0.0.1",
            store=StoreConfig(
                root_dir=str(root),
                flush_disk_type="ASYNC_FLUSH",
                mapped_file_size_commit_log=1 << 20,
                max_hash_slot_num=1000,
                max_index_num=4000,
            ),
            **settings,
        )
        clock = ManualClock(NOW)
        self.store = MessageStore(self.config.store, clock=clock)
        self.store.start()
        self.clients = ClientIds()
        self.shown, self.commit = ShownLog(self.store.log), GroupCommit(self.config)
        self.replies = ReplyMessageProcessor(
            config=self.config,
            metadata=Metadata(self.config, clock, Pieces()),
            clients=self.clients,
            store=self.store,
            group_commit=self.commit,
            shown=self.shown,
            clock=clock,
        )

    def asker(self, connection) -> None:
        self.clients.hear(ClientChannel(connection, "asker", "JAVA", 401))

    def reply(self, code: int = 325, **fields) -> RemotingCommand:
        return asyncio.run(self.replied(code, **fields))

    async def replied(self, code: int = 325, **fields) -> RemotingCommand:
        kind = SendMessageRequestHeader if code == 324 else SendMessageRequestHeaderV2
        values = {
            "producer_group": "P",
            "topic": TOPIC,
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 1,
            "born_timestamp": NOW - 5,
            "flag": 3,
            "properties": encode_properties(REPLY).decode(),
            "reconsume_times": 0,
        } | fields
        request = RemotingCommand(
            code=code, opaque=8, ext_fields=kind(**values).fields(), body=b"the reply"
        )
        answer = await self.replies.handlers()[code](request, self.connection)
        assert (
            answer.ext_fields.items() >= {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}.items()
        )
        return answer

    def stored(self) -> list[bytes]:
        queue = self.store.queues.get(TOPIC, 0)
        return [decode_record(self.store.read(queue[i][0])).body for i in range(queue.max)]


@pytest.fixture
def bench(tmp_path: Path, connection):
    made = Bench(tmp_path, connection)
    yield made
    made.store.close()


def taken(request: RemotingCommand) -> RemotingCommand:
    return request.reply(0)


@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_reaches_the_requester_and_is_stored(bench, another_connection, code: int) -> None:
    another_connection.answer = taken
    bench.asker(another_connection)
    answer = bench.reply(code)
    assert (answer.code, answer.opaque) == (0, 8)
    assert answer.ext_fields["queueOffset"] == "0"
    assert len(answer.ext_fields["msgId"]) == 32
    (pushed,) = another_connection.asked
    assert (pushed.code, pushed.body) == (326, b"the reply")
    fields = dict(pushed.ext_fields)
    assert decode_properties(fields.pop("properties").encode()) == {
        **REPLY,
        "PUSH_REPLY_TIME": str(NOW),
    }
    assert fields == {
        **{"producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102"},
        **{"defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "1", "flag": "3"},
        **{"bornTimestamp": str(NOW - 5), "storeTimestamp": str(NOW), "reconsumeTimes": "0"},
        **{"bornHost": "127.0.0.1:40000", "storeHost": "127.0.0.1:10911", "unitMode": "false"},
    }
    assert bench.stored() == [b"the reply"]
    record = decode_record(bench.store.read(0))
    assert (record.sys_flag, record.properties) == (1, REPLY)


def test_a_reply_to_an_absent_requester_is_stored_and_its_sender_gets_a_remark(bench) -> None:
    answer = bench.reply()
    assert (answer.code, answer.remark) == (
        1,
        "push reply message fail, channel of <asker> not found.",
    )
    assert bench.stored() == [b"the reply"]


def test_a_reply_to_a_closed_connection_is_not_pushed(bench, another_connection) -> None:
    bench.asker(another_connection)
    another_connection.closed = True
    assert "not found" in bench.reply().remark
    assert another_connection.asked == []
    at_once(bench.clients.closing_steps(another_connection))
    assert bench.clients.find("asker") is None


def test_a_reply_without_a_requester_is_stored_and_its_sender_gets_a_remark(bench) -> None:
    answer = bench.reply(properties="MSG_TYPE\x01reply")
    assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
    assert bench.stored() == [b"the reply"]


def test_a_requester_may_refuse_or_not_answer(bench, another_connection) -> None:
    bench.asker(another_connection)
    another_connection.answer = lambda request: request.reply(1, "not mine")
    assert bench.reply().remark == "push reply message to asker fail. not mine"

    def silent(_: RemotingCommand) -> RemotingCommand:
        raise RequestTimeoutError("no answer in time")

    another_connection.answer = silent
    assert bench.reply().remark == "push reply message to asker fail. no answer in time"
    assert len(bench.stored()) == 2


def test_replies_are_not_stored_if_storing_is_disabled(
    tmp_path, connection, another_connection
) -> None:
    bench = Bench(tmp_path, connection, store_reply_message_enable=False)
    another_connection.answer = taken
    bench.asker(another_connection)
    answer = bench.reply()
    assert answer.code == 0
    assert (answer.ext_fields["msgId"], answer.ext_fields["queueOffset"]) == ("0", "0")
    assert bench.stored() == []
    bench.store.close()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere", "default_topic": "none"}, 17),
        ({"topic": "SELF_TEST_TOPIC"}, 16),
        ({"queue_id": 1}, 1),
    ],
)
def test_an_invalid_reply_is_refused_and_not_pushed(
    bench, another_connection, fields, code
) -> None:
    bench.asker(another_connection)
    assert bench.reply(**fields).code == code
    assert another_connection.asked == []
    assert bench.stored() == []


async def test_an_elected_group_confirms_a_reply_before_it_is_pushed(
    tmp_path, connection, another_connection, turn
) -> None:
    bench = Bench(tmp_path, connection)
    another_connection.answer = taken
    bench.asker(another_connection)
    bench.store.show_below(0)
    replying = asyncio.create_task(bench.replied())
    while not bench.store.log.max_offset:
        await turn()
    await turn()
    assert another_connection.asked == []
    bench.store.show_below(bench.store.log.max_offset)
    bench.shown.look()
    assert (await replying).code == 0
    assert len(another_connection.asked) == 1
    bench.store.close()


async def test_a_reply_that_is_not_confirmed_is_not_pushed(
    tmp_path, connection, another_connection
) -> None:
    bench = Bench(tmp_path, connection)
    bench.commit.timeout_s = 0.01
    bench.asker(another_connection)
    bench.store.show_below(0)
    answer = await bench.replied()
    assert (answer.code, another_connection.asked) == (1, [])
    assert "slaves have not confirmed it" in answer.remark
    bench.store.close()


@pytest.mark.parametrize(("limit", "most"), [("WAITING_MAX", 2), ("WAITING_BYTES_MAX", 200)])
async def test_a_reply_beyond_those_that_wait_is_refused(
    tmp_path, connection, another_connection, turn, monkeypatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(reply_processor, limit, most)
    bench = Bench(tmp_path, connection)
    another_connection.answer = taken
    bench.asker(another_connection)
    bench.store.show_below(0)
    replying = [asyncio.create_task(bench.replied()) for _ in range(3)]
    while not replying[2].done():
        await turn()
    assert (replying[2].result().code, len(bench.stored())) == (2, 2)
    bench.store.show_below(1 << 20)
    bench.shown.look()
    assert [(await each).code for each in replying[:2]] == [0, 0]
    assert (await bench.replied()).code == 0, "those that waited have left"
    bench.store.close()
