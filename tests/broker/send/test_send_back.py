"""Retries, dead letters, and messages that consumers send back."""

import pytest

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.filters import ConsumerFilterManager
from congreve.broker.pull.query import QueryMessageProcessor
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    ConsumerSendMsgBackRequestHeader,
)
from congreve.remoting.transport.pieces import Pieces

from ..send_and_pull import BODY_AT, text


def test_a_retry_with_attempts_left_stays_in_its_topic(bench):
    answer = bench.send(topic="%RETRY%G", reconsume_times=3, max_reconsume_times=4)
    assert answer.code == 0
    assert bench.stored("%RETRY%G").reconsume_times == 3


def test_a_retry_without_attempts_left_becomes_a_dead_letter(bench):
    bench.send(topic="%RETRY%G", reconsume_times=4, max_reconsume_times=4)
    assert bench.stored("%DLQ%G").reconsume_times == 4
    assert bench.topics.get("%DLQ%G").perm == 6


def test_a_dead_letter_that_was_sent_with_a_delay_waits_for_it_as_with_the_reference(bench):
    properties = text(TAGS="a", DELAY="3")
    bench.send(topic="%RETRY%G", reconsume_times=4, max_reconsume_times=4, properties=properties)
    parked = bench.stored("SCHEDULE_TOPIC_XXXX", 2).properties
    assert (parked["REAL_TOPIC"], parked["REAL_QID"]) == ("%DLQ%G", "0")


def test_a_retry_of_an_unknown_group_is_refused(bench):
    bench.config.auto_create_subscription_group = False
    answer = bench.send(topic="%RETRY%G")
    assert answer.code == 26 and "G" in answer.remark


def back(bench, **fields) -> RemotingCommand:
    offset = bench.stored("T").physical_offset
    values = {"offset": offset, "group": "G", "delay_level": 0} | fields
    header = ConsumerSendMsgBackRequestHeader(**values)
    return bench.ask(RemotingCommand(code=36, ext_fields=header.fields()))


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
