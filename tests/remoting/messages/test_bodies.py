"""Bodies as clients of several languages write them, and as they read ours."""

import json
import time
from pathlib import Path

import pytest
from harness.slowness import limit_s

from congreve.remoting.errors import BodyError
from congreve.remoting.messages import admin_bodies, bodies, body, fastjson

CONFIG_FILES = json.loads((Path(__file__).parents[2] / "golden/state_files.json").read_text())
QUEUE = body.MessageQueue("T", "b", 0)
QUEUE_TEXT = '{"brokerName":"b","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (
            bodies.TopicRouteData,
            '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
            '"brokerName":"b","cluster":"C"}],"filterServerTable":{},"queueDatas":['
            '{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}',
        ),
        (
            bodies.ClusterInfo,
            '{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"b",'
            '"cluster":"C"}},"clusterAddrTable":{"C":["b"]}}',
        ),
        (bodies.DataVersion, '{"counter":1,"timestamp":1690000000000}'),
        (
            bodies.TopicConfig,
            '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
            '"topicName":"T","topicSysFlag":0,"writeQueueNums":4}',
        ),
        (
            bodies.SubscriptionGroupConfig,
            '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
            '"consumeFromMinEnable":true,"groupName":"G","notifyConsumerIdsChangedEnable":true,'
            '"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}',
        ),
        (
            admin_bodies.SubscriptionData,
            '{"classFilterMode":false,"codeSet":[97],"expressionType":"TAG","subString":"a||b",'
            '"subVersion":1690000000000,"tagsSet":["a","b"],"topic":"T"}',
        ),
        (
            admin_bodies.TopicStatsTable,
            '{"offsetTable":{' + QUEUE_TEXT + ':{"lastUpdateTimestamp":0,"maxOffset":0,'
            '"minOffset":0}}}',
        ),
        (
            admin_bodies.ConsumeStats,
            '{"consumeTps":0.0,"offsetTable":{' + QUEUE_TEXT + ':{"brokerOffset":9,'
            '"consumerOffset":7,"lastTimestamp":0}}}',
        ),
        (admin_bodies.ResetOffsetBody, '{"offsetTable":{' + QUEUE_TEXT + ":12}}"),
        (
            admin_bodies.GetConsumerStatusBody,
            '{"consumerTable":{"cid":{'
            + QUEUE_TEXT
            + ':12}},"messageQueueTable":{'
            + QUEUE_TEXT
            + ":12}}",
        ),
        (
            admin_bodies.ProducerConnection,
            '{"connectionSet":[{"clientAddr":"ip:1","clientId":"cid","language":"JAVA",'
            '"version":401}]}',
        ),
        (
            admin_bodies.ProducerTableInfo,
            '{"data":{"G":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":0,'
            '"remoteIP":"/ip:1","version":401}]}}',
        ),
        (
            admin_bodies.ConsumeMessageDirectlyResult,
            '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"remark":"r",'
            '"spentTimeMills":3}',
        ),
        (bodies.LockBatchResponseBody, '{"lockOKMQSet":[' + QUEUE_TEXT + "]}"),
        (bodies.KVTable, '{"table":{"k":"v"}}'),
        (admin_bodies.TopicList, '{"brokerAddr":"ip:1","topicList":["T"]}'),
        (bodies.ConsumerOffsetSerializeWrapper, '{"offsetTable":{"T@G":{0:1,1:2}}}'),
        (
            bodies.OffsetMovedEvent,
            '{"consumerGroup":"G","messageQueue":' + QUEUE_TEXT + ',"offsetNew":0,'
            '"offsetRequest":5}',
        ),
    ],
)
def test_body_has_the_text_of_the_reference(cls, text):
    assert cls.decode(text.encode()).encode().decode() == text


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (bodies.TopicConfigSerializeWrapper, "topics.json"),
        (bodies.SubscriptionGroupWrapper, "subscriptionGroup.json"),
        (bodies.ConsumerOffsetSerializeWrapper, "consumerOffset.json"),
        (bodies.DelayOffsetSerializeWrapper, "delayOffset.json"),
    ],
)
def test_config_file_survives_reading_and_writing(cls, name):
    text = CONFIG_FILES[name]
    assert fastjson.dumps_pretty(cls.decode(text.encode())) == text


def test_queues_are_read_as_keys_in_either_form():
    for text in (
        '{"offsetTable":{' + QUEUE_TEXT + ":12}}",
        json.dumps({"offsetTable": {QUEUE_TEXT: 12}}),
    ):
        assert admin_bodies.ResetOffsetBody.decode(text.encode()).offset_table == {QUEUE: 12}


@pytest.mark.parametrize("name", ["{x}", "{}", QUEUE_TEXT, "$ref"])
def test_a_name_that_looks_like_a_queue_stays_a_name(name):
    table = bodies.KVTable(table={name: "1"})
    assert bodies.KVTable.decode(table.encode()) == table
    topics = bodies.TopicConfigSerializeWrapper(
        topic_config_table={name: bodies.TopicConfig(topic_name=name)}
    )
    assert bodies.TopicConfigSerializeWrapper.decode(topics.encode()) == topics


@pytest.mark.parametrize("levels", [26, 1_000, 100_000])
def test_the_cost_of_objects_in_keys_is_linear_in_their_text(levels):
    text = b"{" * levels + b":1}" * levels
    started = time.thread_time()
    with pytest.raises(BodyError):
        bodies.KVTable.decode(text)
    assert time.thread_time() - started < limit_s(1)


@pytest.mark.parametrize("depth", [body.MAX_DEPTH + 1, 900, 100_000])
def test_a_body_nested_too_deep_is_refused_in_one_line(depth):
    with pytest.raises(BodyError, match="nested"):
        bodies.KVTable.decode(b'{"a":' + b"[" * depth + b"]" * depth + b"}")


def test_numbers_that_java_cannot_hold_are_refused():
    # As keys they would be a way to fill a dict with equal hashes.
    queue = f'{{"topic":"T","brokerName":"b","queueId":{2**61 - 1}}}'
    for cls, text in (
        (bodies.LockBatchRequestBody, f'{{"consumerGroup":"g","clientId":"c","mqSet":[{queue}]}}'),
        (admin_bodies.ResetOffsetBody, f'{{"offsetTable":{{{queue}:1}}}}'),
        (bodies.ConsumerOffsetSerializeWrapper, f'{{"offsetTable":{{"t@g":{{{2**31}:1}}}}}}'),
        (bodies.BrokerData, f'{{"cluster":"","brokerName":"","brokerAddrs":{{{2**63}:"a"}}}}'),
    ):
        with pytest.raises(BodyError):
            cls.decode(text.encode())


def test_a_heartbeat_of_the_cpp_client_is_read():
    text = (
        b'{"clientID":"ip@1#i","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,'
        b'"groupName":"G","messageModel":0,"subscriptionDataSet":[{"subString":"*",'
        b'"subVersion":"1690000000000","topic":"T","tagsSet":null}]}]}'
    )
    heartbeat = bodies.HeartbeatData.decode(text)
    consumer = heartbeat.consumer_data_set[0]
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "BROADCASTING"
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.subscription_data_set == [
        admin_bodies.SubscriptionData("T", sub_version=1_690_000_000_000)
    ]
    assert heartbeat.producer_data_set == []


def test_a_heartbeat_of_a_5x_client_is_read():
    text = (
        b'{"clientID":"c","consumerDataSet":[],"heartbeatFingerprint":0,'
        b'"producerDataSet":[{"groupName":"P"}],"withoutSub":false}'
    )
    assert bodies.HeartbeatData.decode(text).producer_data_set == [bodies.ProducerData("P")]


def test_a_route_of_an_old_broker_is_read():
    text = b'{"queueDatas":[{"brokerName":"b","topicSynFlag":2}]}'
    assert bodies.TopicRouteData.decode(text).queue_datas[0].topic_sys_flag == 2


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (bodies.HeartbeatData, b"{}"),
        (bodies.HeartbeatData, b"[]"),
        (bodies.HeartbeatData, b'{"clientID":"c","consumerDataSet":[1]}'),
        (admin_bodies.ResetOffsetBody, b'{"offsetTable":{{"topic":"T"}:1}}'),
        (bodies.TopicConfig, b'{"topicName":"T","perm":"six"}'),
    ],
)
def test_a_body_of_another_type_is_refused(cls, text):
    with pytest.raises(BodyError):
        cls.decode(text)
