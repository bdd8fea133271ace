"""Every check of a pull, with its code and a remark that names the value."""

import pytest

from congreve.records.record import decode_records
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig

from ..send_and_pull import text


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
def test_an_invalid_pull_is_refused_with_the_name_of_its_field(bench, fields, code, says):
    bench.send()
    answer = bench.pull(**fields)
    assert answer.code == code
    assert says in answer.remark


def test_a_pull_needs_the_permissions_of_broker_topic_and_group(bench):
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


def test_a_pull_does_not_commit_a_negative_offset(bench):
    bench.send()
    bench.pull(sys_flag=4 | 1, commit_offset=-5)
    assert bench.offsets.query("G", "T", 0) == -1
    bench.pull(sys_flag=4 | 1, commit_offset=1, queue_offset=1)
    bench.pull(sys_flag=4 | 1, commit_offset=-5, queue_offset=1)
    assert bench.offsets.query("G", "T", 0) == 1
