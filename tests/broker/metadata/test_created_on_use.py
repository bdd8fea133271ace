"""What clients create by using it is limited by its memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.wire import PULL_MESSAGE, SEND_MESSAGE_V2, Answer, Wire, send_fields

from congreve.base.clock import ManualClock
from congreve.base.table_limit import TableFullError
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.config_parts import LimitsConfig
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.engine.config import StoreConfig
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig

from ..tool import local_config

LIMIT = 100_000
LONG = "x" * 100


def config() -> BrokerConfig:
    return BrokerConfig(limits=LimitsConfig(max_created_on_use_bytes=LIMIT))


def test_groups_of_clients_are_limited_by_their_size_and_those_of_administrators_are_not() -> None:
    def most(suffix: str) -> int:
        groups = SubscriptionGroupManager(config(), ManualClock(0))
        made = 0
        with pytest.raises(TableFullError, match="maxCreatedOnUseBytes"):
            for made in range(1_000):
                groups.find(f"{made}{suffix}")
        for number in range(100):
            groups.update(SubscriptionGroupConfig(group_name=f"admin{number}"))
        assert groups.find("0" + suffix) is not None, "what is there stays"
        groups.delete("0" + suffix)
        groups.delete("1" + suffix)
        assert groups.find("later") is not None, "a deleted one has room again"
        return made

    assert 20 < most(LONG) < most("") < 60


def test_topics_of_clients_are_limited_by_their_size_and_those_of_brokers_are_not() -> None:
    def most(suffix: str, queues: int) -> int:
        topics = TopicConfigManager(config(), ManualClock(0))
        made = 0
        with pytest.raises(TableFullError, match="maxCreatedOnUseBytes"):
            for made in range(1_000):
                topics.create_on_send(f"{made}{suffix}", "TBW102", queues)
        with pytest.raises(TableFullError, match="maxCreatedOnUseBytes"):
            topics.create_internal("%RETRY%" + LONG, 16, on_use=True)
        topics.create_internal("%RETRY%" + LONG, 1)
        topics.update(TopicConfig(topic_name="admin"))
        topics.delete("0" + suffix)
        topics.delete("1" + suffix)
        assert topics.create_on_send("later", "TBW102", 1) is not None
        return made

    assert 5 < most(LONG, 8) < most("", 8) < most("", 1) < 100


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    settings = local_config(store=StoreConfig(root_dir=str(tmp_path)), limits=config().limits)
    with Broker(settings) as broker, Wire(broker.address) as opened:
        yield opened


def test_the_refusal_names_the_setting(wire: Wire) -> None:
    def pull(group: str) -> Answer:
        numbers = dict.fromkeys(("queueId", "queueOffset", "commitOffset", "subVersion"), "0")
        fields = {"consumerGroup": group, "topic": "T", "maxMsgNums": "1", "sysFlag": "4"}
        more = {"suspendTimeoutMillis": "0", "subscription": "*", "expressionType": "TAG"}
        return wire.call(PULL_MESSAGE, fields | numbers | more)

    assert wire.call(SEND_MESSAGE_V2, send_fields("T", 0, {}), b"x").code == 0
    refusals = [answer for n in range(80) if (answer := pull(f"g{n}")).code not in (0, 19)]
    assert refusals and all("maxCreatedOnUseBytes" in answer.remark for answer in refusals)
    refusals = [
        answer
        for n in range(80)
        if (answer := wire.call(SEND_MESSAGE_V2, send_fields(f"T{n}", 0, {}), b"x")).code != 0
    ]
    assert refusals and all("maxCreatedOnUseBytes" in answer.remark for answer in refusals)
    assert pull("g0").code == 0 and wire.call(SEND_MESSAGE_V2, send_fields("T", 0, {})).code == 0
