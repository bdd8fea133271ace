"""Every check of a send, with its code and a remark that names the value."""

import pytest

from congreve.remoting.messages.bodies import TopicConfig

from ..send_and_pull import send_request, text


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


def test_a_negative_queue_id_selects_any_queue(bench):
    assert bench.send(queue_id=-1).ext_fields["queueId"] == "3"


def test_a_new_topic_gets_the_requested_number_of_queues(bench):
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
def test_an_invalid_send_is_refused_with_the_name_of_its_field(bench, fields, code, says):
    answer = bench.send(**fields)
    assert answer.code == code
    assert says in answer.remark
    assert answer.ext_fields.keys() == {"MSG_REGION", "TRACE_ON"}
    assert bench.store.log.max_offset == bench.store.log.min_offset


def test_a_body_over_the_limit_is_refused_and_one_at_the_limit_is_accepted(bench):
    limit = bench.config.store.max_message_size
    assert bench.send(bytes(limit)).code == 0
    answer = bench.send(bytes(limit + 1))
    assert answer.code == 13
    assert str(limit + 1) in answer.remark and str(limit) in answer.remark


def test_the_error_for_a_missing_field_names_it(bench):
    request = send_request()
    del request.ext_fields["e"]
    answer = bench.ask(request)
    assert answer.code == 1 and "'e'" in answer.remark
    assert "MSG_REGION" in answer.ext_fields


def test_a_malformed_batch_is_refused(bench):
    answer = bench.send(batch_of(b"one")[:-1], code=320, batch=True)
    assert answer.code == 13


def test_a_broker_before_its_start_time_refuses_sends_with_that_time(bench):
    bench.config.start_accept_send_request_time_stamp = 1_700_000_000_001
    answer = bench.send()
    assert answer.code == 1 and "1700000000001" in answer.remark


def test_an_order_topic_is_refused_while_the_broker_is_not_writable(bench):
    bench.topics.update(TopicConfig(topic_name="T", order=True))
    bench.config.broker_permission = 4
    answer = bench.send()
    assert answer.code == 16 and "brokerPermission 4" in answer.remark


def test_a_delayed_message_is_not_visible_before_its_delivery(bench):
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


@pytest.mark.parametrize("text_of_level", ["4x", " 1", "0x1", "99999999999"])
@pytest.mark.parametrize("kind", [{}, {"TRAN_MSG": "true", "PGROUP": "P"}])
def test_a_delay_level_that_is_no_number_is_refused(bench, text_of_level, kind):
    end = bench.store.log.max_offset
    answer = bench.send(properties=text(DELAY=text_of_level, **kind))
    assert answer.code == 1 and repr(text_of_level) in answer.remark
    assert bench.store.log.max_offset == end
