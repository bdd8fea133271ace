"""Every check of a send and of a pull, with its code and a remark that names the value."""

import pytest

from congreve.broker.config import BrokerConfig
from congreve.broker.consumers import ConsumerManager
from congreve.broker.durability import DurabilityGate
from congreve.broker.filters import ConsumerFilterManager
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.pull import PullMessageProcessor
from congreve.broker.refusals import answer_refusals
from congreve.broker.send import SendMessageProcessor
from congreve.broker.sendback import SendBackProcessor
from congreve.broker.stats import BrokerStats
from congreve.broker.topics import TopicConfigManager
from congreve.broker.transactionservice import TransactionService
from congreve.engine.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.record import decode_record, decode_records, encode_properties
from congreve.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from congreve.remoting.command import RemotingCommand
from congreve.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)


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
        self.store = MessageStore(self.config.store, clock=self.clock, on_arrival=self.arrived)
        self.store.start()
        self.topics = TopicConfigManager(self.config, self.clock)
        self.groups = SubscriptionGroupManager(self.config, self.clock)
        self.offsets = ConsumerOffsetManager()
        self.consumers = ConsumerManager(self.clock, lambda *_: None)
        stats = BrokerStats(self.clock, lambda: self.store.queues)
        self.gate = DurabilityGate(self.store.log.backend, 5)
        self.pulls = PullMessageProcessor(
            config=self.config,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            filters=ConsumerFilterManager(self.clock),
            offsets=self.offsets,
            store=self.store,
            stats=stats,
            clock=self.clock,
        )
        sends = SendMessageProcessor(
            config=self.config,
            topics=self.topics,
            groups=self.groups,
            store=self.store,
            gate=self.gate,
            transactions=TransactionService(
                self.store, self.offsets, self.clock, lambda: self.config.store_host
            ),
            clock=self.clock,
            pick=lambda bound: bound - 1,
        )
        backs = SendBackProcessor(
            config=self.config,
            topics=self.topics,
            groups=self.groups,
            store=self.store,
            gate=self.gate,
            pick=lambda bound: bound - 1,
        )
        self.handlers = answer_refusals(
            {**sends.handlers(), **backs.handlers(), **self.pulls.handlers()}
        )

    def arrived(self, queue) -> None:
        self.pulls.hold.arrived(queue)

    def ask(self, request: RemotingCommand) -> RemotingCommand | None:
        return self.handlers[request.code](request, self.connection)

    def send(self, body: bytes = b"hello", *, code: int = 310, **fields) -> RemotingCommand:
        return self.ask(send_request(body, code=code, **fields))

    def pull(self, **fields) -> RemotingCommand | None:
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


@pytest.fixture
def bench(tmp_path, connection):
    made = Bench(str(tmp_path / "store"), connection)
    yield made
    made.store.close()


# ---- sends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [10, 310])
def test_a_send_is_stored_as_it_was_sent(bench, code):
    answer = bench.send(code=code, queue_id=2)
    assert (answer.code, answer.remark, answer.opaque) == (0, None, 5)
    fields = answer.ext_fields
    assert fields["queueId"] == "2" and fields["queueOffset"] == "0"
    assert fields["MSG_REGION"] == "DefaultRegion" and fields["TRACE_ON"] == "true"
    record = bench.stored("T", 2)
    assert record.body == b"hello"
    assert record.flag == 7
    assert record.born_timestamp == 1_699_999_999_999
    assert record.born_host == bench.connection.peer
    assert record.store_host == ("127.0.0.1", bench.config.listen_port)
    assert record.properties == {"TAGS": "a", "KEYS": "k", "CLUSTER": "C"}
    assert fields["msgId"].startswith("7F000001")
    assert int(fields["msgId"][16:], 16) == record.physical_offset


def test_a_negative_queue_id_is_any_queue(bench):
    assert bench.send(queue_id=-1).ext_fields["queueId"] == "3"


def test_an_unknown_topic_gets_the_wanted_queues(bench):
    bench.send(topic="New", default_topic_queue_nums=3)
    assert bench.topics.get("New").write_queue_nums == 3


def test_a_batch_gets_consecutive_offsets(bench):
    bench.send()
    answer = bench.send(batch_of(b"one", b"two"), code=320, batch=True)
    assert answer.code == 0
    assert answer.ext_fields["queueOffset"] == "1"
    assert len(answer.ext_fields["msgId"].split(",")) == 2
    assert [bench.stored("T", 0, n).body for n in (1, 2)] == [b"one", b"two"]
    assert bench.stored("T", 0, 2).properties["CLUSTER"] == "C"


def batch_of(*bodies: bytes) -> bytes:
    out = b""
    properties = text(TAGS="b").encode()
    for body in bodies:
        size = 22 + len(body) + len(properties)
        out += b"".join(n.to_bytes(4, "big") for n in (size, 0, 0, 0, len(body)))
        out += body + len(properties).to_bytes(2, "big") + properties
    return out


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"topic": " "}, 1, "blank"),
        ({"topic": "a b"}, 1, "[a b]"),
        ({"topic": "x" * 128}, 1, "128"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "[SCHEDULE_TOPIC_XXXX]"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "[RMQ_SYS_TRANS_HALF_TOPIC]"),
        ({"topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC"}, 16, "[RMQ_SYS_TRANS_OP_HALF_TOPIC]"),
        ({"topic": "TRANS_CHECK_MAX_TIME_TOPIC"}, 16, "[TRANS_CHECK_MAX_TIME_TOPIC]"),
        ({"topic": "SELF_TEST_TOPIC"}, 16, "[SELF_TEST_TOPIC]"),
        ({"topic": "OFFSET_MOVED_EVENT"}, 16, "[OFFSET_MOVED_EVENT]"),
        ({"default_topic": "nowhere"}, 17, "topic[T]"),
        ({"queue_id": 4}, 1, "queueId[4]"),
        ({"properties": "a\x01" + "x" * 32_766}, 13, "32768"),
        ({"properties": "a\x01" + "x" * 32_760}, 13, "32767"),
    ],
)
def test_a_bad_send_is_refused_by_name(bench, fields, code, says):
    answer = bench.send(**fields)
    assert answer.code == code
    assert says in answer.remark
    assert answer.ext_fields.keys() == {"MSG_REGION", "TRACE_ON"}
    assert bench.store.log.max_offset == bench.store.log.min_offset


def test_a_body_over_the_limit_is_illegal_and_one_at_the_limit_is_not(bench):
    limit = bench.config.store.max_message_size
    assert bench.send(bytes(limit)).code == 0
    answer = bench.send(bytes(limit + 1))
    assert answer.code == 13
    assert str(limit + 1) in answer.remark and str(limit) in answer.remark


def test_a_field_that_is_missing_is_named(bench):
    request = send_request()
    del request.ext_fields["e"]
    answer = bench.ask(request)
    assert answer.code == 1 and "'e'" in answer.remark
    assert "MSG_REGION" in answer.ext_fields


def test_a_broken_batch_is_illegal(bench):
    answer = bench.send(batch_of(b"one")[:-1], code=320, batch=True)
    assert answer.code == 13


def test_a_broker_that_opens_later_says_when(bench):
    bench.config.start_accept_send_request_time_stamp = 1_700_000_000_001
    answer = bench.send()
    assert answer.code == 1 and "1700000000001" in answer.remark


def test_an_order_topic_is_refused_while_the_broker_is_not_writable(bench):
    bench.topics.update(TopicConfig(topic_name="T", order=True))
    bench.config.broker_permission = 4
    answer = bench.send()
    assert answer.code == 16 and "brokerPermission 4" in answer.remark


def test_a_delayed_message_is_parked_out_of_sight(bench):
    bench.send(properties=text(TAGS="a", DELAY="99"), queue_id=1)
    record = bench.stored("SCHEDULE_TOPIC_XXXX", 17)
    assert record.properties["REAL_TOPIC"] == "T" and record.properties["REAL_QID"] == "1"
    assert record.properties["DELAY"] == "18"
    tags_code = bench.store.queues.get("SCHEDULE_TOPIC_XXXX", 17)[0][2]
    assert tags_code == record.store_timestamp + 2 * 3_600_000
    assert bench.pull(queue_id=1).code == 19


def test_a_oneway_send_is_stored_too(bench):
    request = send_request()
    request.flag = 2
    bench.ask(request)
    assert bench.stored("T").body == b"hello"


# ---- retries -----------------------------------------------------------------------------------


def test_a_retry_with_attempts_left_stays_in_its_topic(bench):
    answer = bench.send(topic="%RETRY%G", reconsume_times=3, max_reconsume_times=4)
    assert answer.code == 0
    assert bench.stored("%RETRY%G").reconsume_times == 3


def test_a_retry_without_attempts_left_is_a_dead_letter(bench):
    properties = text(TAGS="a", DELAY="3")
    bench.send(topic="%RETRY%G", reconsume_times=4, max_reconsume_times=4, properties=properties)
    assert bench.stored("%DLQ%G").reconsume_times == 4
    assert bench.topics.get("%DLQ%G").perm == 6


def test_a_retry_of_an_unknown_group_is_refused(bench):
    bench.config.auto_create_subscription_group = False
    answer = bench.send(topic="%RETRY%G")
    assert answer.code == 26 and "G" in answer.remark


def back(bench, **fields) -> RemotingCommand:
    offset = bench.stored("T").physical_offset
    values = {"offset": offset, "group": "G", "delay_level": 0} | fields
    header = ConsumerSendMsgBackRequestHeader(**values)
    return bench.ask(RemotingCommand(code=36, ext_fields=header.fields()))


def test_a_message_sent_back_waits_for_its_retry(bench):
    sent = bench.send().ext_fields["msgId"]
    assert back(bench).code == 0
    record = bench.stored("SCHEDULE_TOPIC_XXXX", 2)
    assert record.reconsume_times == 1
    assert record.properties == {
        "TAGS": "a",
        "KEYS": "k",
        "CLUSTER": "C",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": sent,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
    }


@pytest.mark.parametrize("fields", [{"max_reconsume_times": 0}, {"delay_level": -1}])
def test_a_message_that_used_its_attempts_is_a_dead_letter(bench, fields):
    bench.send()
    assert back(bench, **fields).code == 0
    assert bench.stored("%DLQ%G").properties["DELAY"] == "0"


def test_a_group_without_retry_queues_drops_what_comes_back(bench):
    bench.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=0))
    bench.send()
    end = bench.store.log.max_offset
    assert back(bench).code == 0
    assert bench.store.log.max_offset == end


def test_sending_back_what_is_not_there_is_refused(bench):
    bench.send()
    answer = back(bench, offset=12_345_678)
    assert answer.code == 1 and "12345678" in answer.remark


# ---- pulls -------------------------------------------------------------------------------------


def test_a_pull_finds_what_was_sent(bench):
    for number in range(5):
        bench.send(b"%d" % number)
    answer = bench.pull(max_msg_nums=3)
    assert (answer.code, answer.remark, answer.opaque) == (0, "FOUND", 6)
    assert [record.body for record in decode_records(answer.body)] == [b"0", b"1", b"2"]
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "5",
    }


@pytest.mark.parametrize(
    ("offset", "code", "status", "next_offset"),
    [
        (2, 19, "OFFSET_OVERFLOW_ONE", 2),
        (9, 21, "OFFSET_OVERFLOW_BADLY", 2),
        (-1, 21, "OFFSET_TOO_SMALL", 0),
    ],
)
def test_an_offset_outside_of_the_queue_is_corrected(bench, offset, code, status, next_offset):
    bench.send()
    bench.send()
    answer = bench.pull(queue_offset=offset)
    assert (answer.code, answer.remark) == (code, status)
    assert answer.ext_fields["nextBeginOffset"] == str(next_offset)
    assert answer.body == b""
    if code == 21:
        assert b'"offsetRequest":%d' % offset in bench.stored("OFFSET_MOVED_EVENT").body


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (7, 21)])
def test_a_queue_without_messages_starts_at_zero(bench, offset, code):
    bench.topics.update(TopicConfig(topic_name="T"))
    answer = bench.pull(queue_offset=offset)
    assert answer.code == code
    assert answer.ext_fields["nextBeginOffset"] == "0"


def test_tags_are_filtered_by_hash(bench):
    for tag in ("a", "b", "a"):
        bench.send(tag.encode(), properties=text(TAGS=tag))
    answer = bench.pull(subscription=" b || c ")
    assert [record.body for record in decode_records(answer.body)] == [b"b"]
    answer = bench.pull(subscription="c")
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (20, "3")


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"topic": "nowhere"}, 17, "nowhere"),
        ({"queue_id": 4}, 1, "queueId[4]"),
        ({"queue_id": -1}, 1, "queueId[-1]"),
        ({"consumer_group": "a b"}, 26, "[a b]"),
        ({"subscription": "||"}, 23, "'||'"),
        ({"expression_type": "SQL92", "subscription": "a > 1"}, 1, "SQL92"),
        ({"sys_flag": 0}, 24, "[G]"),
    ],
)
def test_a_bad_pull_is_refused_by_name(bench, fields, code, says):
    bench.send()
    answer = bench.pull(**fields)
    assert answer.code == code
    assert says in answer.remark


def test_permissions_of_broker_topic_and_group_are_asked(bench):
    bench.send()
    bench.groups.update(SubscriptionGroupConfig(group_name="G", consume_enable=False))
    assert bench.pull().code == 16
    bench.groups.delete("G")
    bench.topics.update(TopicConfig(topic_name="T", perm=2))
    assert bench.pull().code == 16
    bench.config.broker_permission = 2
    assert "brokerPermission 2" in bench.pull().remark


def test_a_pull_commits_the_offset_that_it_carries(bench):
    bench.send()
    bench.pull(sys_flag=4 | 1, commit_offset=1, queue_offset=1)
    assert bench.offsets.query("G", "T", 0) == 1
    bench.pull(sys_flag=4, commit_offset=0)
    assert bench.offsets.query("G", "T", 0) == 1


# ---- long polling ------------------------------------------------------------------------------


async def test_a_held_pull_is_answered_by_the_next_message(bench, connection, turn):
    bench.send()
    held = {"sys_flag": 4 | 2, "queue_offset": 1, "suspend_timeout_millis": 60_000}
    assert bench.pull(**held) is None
    assert len(bench.pulls.hold) == 1
    bench.send(b"other", queue_id=1)
    await turn()
    assert connection.answers == []
    bench.send(b"next")
    await turn()
    (answer,) = connection.answers
    assert (answer.code, answer.opaque) == (0, 6)
    assert [record.body for record in decode_records(answer.body)] == [b"next"]


async def test_a_held_pull_waits_for_its_own_tag(bench, connection, turn):
    bench.send()
    held = {"sys_flag": 6, "queue_offset": 1, "suspend_timeout_millis": 60_000}
    assert bench.pull(subscription="b", **held) is None
    bench.send(b"no", properties=text(TAGS="a"))
    await turn()
    assert connection.answers == []
    bench.send(b"yes", properties=text(TAGS="b"))
    await turn()
    assert [r.body for r in decode_records(connection.answers[0].body)] == [b"yes"]


async def test_a_held_pull_ends_with_nothing(bench, connection):
    import asyncio

    bench.send()
    assert bench.pull(sys_flag=6, queue_offset=1, suspend_timeout_millis=20) is None
    await asyncio.sleep(0.1)
    (answer,) = connection.answers
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (19, "1")
