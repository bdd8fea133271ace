"""Stores with topics and groups of RocketMQ 5: 4.9.4 opens ours, and we open those of 5."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import servers
from harness.drivers import Driver, body, java5_driver, message
from harness.replication.replaceable_broker import ReplaceableBroker
from harness.wire import Wire

ATTRIBUTES = {"message.type": "FIFO"}
GROUP = {
    "groupName": "group",
    "consumeMessageOrderly": True,
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000]}},
    "attributes": {"+priority.factor": "50"},
}


@pytest.fixture
def store(namesrv: servers.Server, java: Driver, tmp_path: Path) -> Iterator[ReplaceableBroker]:
    store = ReplaceableBroker(namesrv, tmp_path / "exchange", java)
    yield store
    store.kill_if_running()


def ask(store: ReplaceableBroker, code: int, fields: dict[str, str], sent: object = None) -> bytes:
    assert store.broker is not None
    with Wire(store.broker.address) as wire:
        answer = wire.call(code, fields, b"" if sent is None else json.dumps(sent).encode())
    assert answer.code == 0, answer.remark
    return answer.body


def fill(store: ReplaceableBroker) -> None:
    """A topic, a group and a request mode with all that 5 has beside 4.9.4."""
    topic = {
        **{"topic": "topic", "defaultTopic": "TBW102", "readQueueNums": "2", "perm": "6"},
        **{"writeQueueNums": "2", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"},
        **{"order": "false", "attributes": "+message.type=FIFO"},
    }
    ask(store, 17, topic)
    ask(store, 200, {}, GROUP)
    ask(store, 401, {}, {"topic": "topic", "consumerGroup": "group", "mode": "POP"})


def test_the_reference_opens_our_store_with_settings_of_5(
    store: ReplaceableBroker, kind: str
) -> None:
    if kind != "congreve":
        pytest.skip("4.9.4 has no such settings")
    store.start("congreve")
    fill(store)
    sent = [message("topic", b"%d" % i) for i in range(9)]
    store.call("send", messages=sent)
    store.end("stop")
    store.start("java")
    found = store.call("drain", topics=["topic"])["messages"]
    assert {body(each) for each in found} == {b"%d" % i for i in range(9)}
    assert b'"retryMaxTimes":16' in ask(store, 201, {})
    store.end("stop")
    store.start("congreve")
    assert len(store.call("drain", topics=["topic"])["messages"]) == len(sent)


def test_settings_of_a_store_of_5_are_kept(kind: str, tmp_path: Path) -> None:
    if kind != "congreve":
        pytest.skip("no exchange")
    names = servers.namesrv("java5", tmp_path / "namesrv")
    names.start()
    driver = java5_driver(tmp_path / "driver")
    store = ReplaceableBroker(names, tmp_path / "exchange", driver)
    try:
        store.start("java5")
        fill(store)
        store.end("stop")
        store.start("congreve")
        topic = json.loads(ask(store, 351, {"topic": "topic"}))
        assert topic["attributes"] == ATTRIBUTES
        group = json.loads(ask(store, 352, {"group": "group"}))
        assert group["attributes"] == {"priority.factor": "50"}
        assert group["consumeMessageOrderly"] and group["groupRetryPolicy"]["type"] == "CUSTOMIZED"
        modes = json.loads(ask(store, 402, {}))["messageRequestModeMap"]
        assert modes["topic"]["group"]["mode"] == "POP"
        ask(store, 200, {}, {**GROUP, "retryMaxTimes": 3, "attributes": {}})
        store.end("stop")
        store.start("java5")
        group = json.loads(ask(store, 352, {"group": "group"}))
        assert group["attributes"] == {"priority.factor": "50"} and group["retryMaxTimes"] == 3
        assert json.loads(ask(store, 351, {"topic": "topic"}))["attributes"] == ATTRIBUTES
    finally:
        store.kill_if_running()
        driver.close()
        names.stop()
