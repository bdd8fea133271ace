"""Retries, dead letters, and messages that consumers send back."""

import pytest

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.filters import ConsumerFilterManager
from congreve.broker.pull.query_processor import QueryMessageProcessor
from congreve.records.message.message import RECONSUME_TIMES_MAX, Record
from congreve.records.message.property_codec import encode_properties
from congreve.records.record import decode_record, encode_record
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import ConsumerSendMsgBackRequestHeader

from ..send_and_pull import BODY_AT, text


def test_a_retry_with_attempts_left_stays_in_its_topic(bench):
    answer = bench.send(topic="%RETRY%G", reconsume_times=3, max_reconsume_times=4)
    assert answer.code == 0
    assert bench.stored("%RETRY%G").reconsume_times == 3


def test_a_retry_without_attempts_left_becomes_a_dead_letter(bench):
    bench.send(topic="%RETRY%G", reconsume_times=4, max_reconsume_times=4)
    assert bench.stored("%DLQ%G").reconsume_times == 4
    assert bench.topics.get("%DLQ%G").perm == 6


@pytest.mark.parametrize("times", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "7200"}, {}])
def test_a_dead_letter_that_its_consumer_sends_waits_for_no_time(bench, times):
    properties = text(TAGS="a", **times)
    bench.send(topic="%RETRY%G", reconsume_times=4, max_reconsume_times=4, properties=properties)
    kept = {"TAGS": "a", "CLUSTER": "C"} | ({"DELAY": "0"} if "DELAY" in times else {})
    assert bench.stored("%DLQ%G").properties == kept


def test_a_retry_of_an_unknown_group_is_refused(bench):
    bench.config.auto_create_subscription_group = False
    answer = bench.send(topic="%RETRY%G")
    assert answer.code == 26 and "G" in answer.remark


def back(bench, **fields) -> RemotingCommand:
    offset = bench.stored("T").physical_offset
    values = {"offset": offset, "group": "G", "delay_level": 0} | fields
    header = ConsumerSendMsgBackRequestHeader(**values)
    return bench.ask(RemotingCommand(code=36, ext_fields=header.fields()))


#: RETRY_TOPIC, DELAY, REAL_TOPIC and REAL_QID of a retry, without which it is none.
LARGEST_RETRY = 32_767 - 53
STORED_SIZES = [32_500, 32_600, 32_640, LARGEST_RETRY, LARGEST_RETRY + 1, 32_740, 32_757]


def large(size: int) -> dict[str, str]:
    """Properties of a message that a record holds in `size` bytes, and with CLUSTER in 10 more."""
    return {"TAGS": "a", "K": "x" * (size - len(b"TAGS\x01a\x02K\x01"))}


def again(bench) -> tuple[str, dict[str, str]]:
    """Topic and properties of the retry or the dead letter, as a consumer will get it."""
    if bench.topics.get("%DLQ%G") is not None:
        return "%DLQ%G", bench.stored("%DLQ%G").properties
    parked = bench.stored("SCHEDULE_TOPIC_XXXX", 2).properties
    return parked["REAL_TOPIC"], parked


@pytest.mark.parametrize("attempts", [0, 16])
@pytest.mark.parametrize("size", STORED_SIZES)
def test_every_message_that_was_stored_can_be_sent_back(bench, size, attempts, caplog):
    assert bench.send(properties=text(**large(size))).code == 0
    assert len(encode_properties(bench.stored("T").properties)) == size + 10
    assert back(bench, max_reconsume_times=attempts).code == 0
    topic, properties = again(bench)
    assert properties.items() >= large(size).items()
    fits = size <= LARGEST_RETRY
    assert topic == ("%RETRY%G" if fits and attempts else "%DLQ%G")
    assert ("no room for a retry" in caplog.text) == (attempts > 0 and not fits)
    if fits:
        assert properties["RETRY_TOPIC"] == "T"


@pytest.mark.parametrize("attempts", [0, 16])
@pytest.mark.parametrize("size", STORED_SIZES)
def test_every_copy_of_a_stored_message_is_taken_back(bench, size, attempts):
    of_client = {"MIN_OFFSET": "0", "MAX_OFFSET": "1", "CONSUME_START_TIME": "1700000000000"}
    of_client |= {"RECONSUME_TIME": "1", "MAX_RECONSUME_TIMES": "16"}
    of_retry = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "7F" * 16, "DELAY": "3"}
    properties = text(**large(size), CLUSTER="C", **of_client, **of_retry)
    sent = bench.send(
        topic="%RETRY%G", properties=properties, reconsume_times=1, max_reconsume_times=attempts
    )
    assert sent.code == 0
    topic, stored = again(bench)
    assert stored.items() >= large(size).items()
    assert topic == ("%RETRY%G" if size <= LARGEST_RETRY and attempts else "%DLQ%G")


@pytest.mark.parametrize("tried", [RECONSUME_TIMES_MAX, RECONSUME_TIMES_MAX - 1])
@pytest.mark.parametrize("attempts", [16, RECONSUME_TIMES_MAX])
def test_a_message_that_was_tried_most_often_can_be_sent_back(bench, tried, attempts):
    assert bench.send(reconsume_times=tried).code == 0
    assert back(bench, max_reconsume_times=attempts).code == 0
    is_dead = tried >= attempts
    copy = bench.stored("%DLQ%G") if is_dead else bench.stored("SCHEDULE_TOPIC_XXXX", 17)
    assert copy.reconsume_times == RECONSUME_TIMES_MAX


def test_a_topic_that_a_sender_invents_is_not_counted(bench):
    bench.send(properties=text(RETRY_TOPIC="invented"))
    assert back(bench).code == 0
    assert back(bench, delay_level=-1).code == 0
    assert bench.stats._sent_back == {("%RETRY%G", "G"): 2}
    assert bench.stats.dead_letters == {("%RETRY%G", "G"): 1}


def test_properties_of_a_copy_that_no_record_can_hold_are_refused(bench):
    answer = bench.send(topic="%RETRY%G", properties=text(**large(32_768)), reconsume_times=1)
    assert answer.code == 13


def test_a_message_can_be_sent_back_when_max_message_size_has_become_smaller(bench):
    bench.send(bytes(5_000))
    bench.config.store.max_message_size = 4_096
    assert back(bench).code == 0
    assert len(bench.stored("SCHEDULE_TOPIC_XXXX", 2).body) == 5_000


def test_a_message_that_is_sent_back_waits_for_its_retry(bench):
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
def test_a_message_without_attempts_left_becomes_a_dead_letter(bench, fields):
    bench.send()
    assert back(bench, **fields).code == 0
    assert bench.stored("%DLQ%G").properties["DELAY"] == "0"


def test_messages_sent_back_to_a_group_without_retry_queues_are_dropped(bench):
    bench.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=0))
    bench.send()
    end = bench.store.log.max_offset
    assert back(bench).code == 0
    assert bench.store.log.max_offset == end


@pytest.mark.parametrize("earlier", [1, 2])
def test_a_retry_lies_where_consumers_read_when_its_group_gets_more_retry_queues(bench, earlier):
    bench.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=earlier))
    bench.send()
    assert back(bench).code == 0
    bench.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=4))
    assert back(bench).code == 0
    retry = bench.topics.get("%RETRY%G")
    assert bench.stored("SCHEDULE_TOPIC_XXXX", 2, 1).properties["REAL_QID"] == "3"
    assert (retry.read_queue_nums, retry.write_queue_nums) == (4, 4)


@pytest.mark.parametrize("length", [120, 121, 127, 128, 255])
def test_a_message_is_sent_back_only_to_a_group_that_can_get_it(bench, length):
    group = "g" * length
    bench.send()
    end = bench.store.log.max_offset
    answer = back(bench, group=group)
    if length == 120:
        assert answer.code == 0
        assert bench.stored("SCHEDULE_TOPIC_XXXX", 2).properties["REAL_TOPIC"] == "%RETRY%" + group
    else:
        assert answer.code == 1 and "at most 120" in answer.remark
        assert bench.store.log.max_offset == end
        assert "%RETRY%" + group not in bench.topics.table


def test_a_retry_topic_keeps_its_queues_when_its_group_gets_fewer(bench):
    bench.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=4))
    bench.send()
    back(bench)
    bench.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=2))
    back(bench)
    assert bench.stored("SCHEDULE_TOPIC_XXXX", 2, 1).properties["REAL_QID"] == "1"
    assert bench.topics.get("%RETRY%G").read_queue_nums == 4


def forge(bench, topic: str) -> int:
    """Send a body that holds a whole record at its own physical offset; returns that offset."""
    at = bench.store.log.max_offset + BODY_AT
    forged = Record(topic=topic, body=b"forged", physical_offset=at, queue_offset=0)
    assert bench.send(encode_record(forged)).code == 0
    assert decode_record(bench.store.read(at)).body == b"forged"
    return at


@pytest.mark.parametrize("topic", ["T", "Other"])
def test_a_record_forged_inside_a_body_is_not_sent_back(bench, topic):
    bench.send()
    answer = back(bench, offset=forge(bench, topic))
    assert answer.code == 1
    assert "look message by offset failed" in answer.remark


@pytest.mark.parametrize("topic", ["T", "Other"])
def test_a_record_forged_inside_a_body_is_not_viewed(bench, topic):
    bench.send()
    query = QueryMessageProcessor(
        bench.store,
        bench.consumers,
        ConsumerFilterManager(BrokerConfig(), bench.clock, Pieces()),
        Pieces(),
    ).handlers()[33]
    asked = RemotingCommand(code=33, ext_fields={"offset": str(forge(bench, topic))})
    with pytest.raises(RefusedError, match="can not find message by the offset"):
        query(asked, bench.connection)
    answer = query(RemotingCommand(code=33, ext_fields={"offset": "0"}), bench.connection)
    assert decode_record(answer.body).body == b"hello"


def test_a_send_back_of_a_missing_message_is_refused(bench):
    bench.send()
    answer = back(bench, offset=12_345_678)
    assert answer.code == 1 and "12345678" in answer.remark
