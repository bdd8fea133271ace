"""The broker accepts RocketMQ's own broker.conf, and names invalid values."""

from pathlib import Path

import pytest

from congreve.broker.broker_conf import load_config
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError

SHIPPED = """\
# as the reference ships it
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
sendMessageThreadPoolNums=128
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    return path


def test_the_distributed_broker_conf_is_read(tmp_path: Path) -> None:
    config, unknown, _ = load_config(write(tmp_path, SHIPPED))
    assert config.broker_name == "broker-a"
    assert config.store.file_reserved_time == 48
    assert config.store.flush_disk_type == "ASYNC_FLUSH"
    assert unknown == [(9, "sendMessageThreadPoolNums")]


def test_sync_flush_is_the_default(tmp_path: Path) -> None:
    assert load_config(str(write(tmp_path, "brokerName=a"))).config.store.sync_flush


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("listenPort=abc", r"broker\.conf:2: listenPort='abc'"),
        ("listenPort=70000", r"broker\.conf:2: listenPort=70000"),
        ("autoCreateTopicEnable=maybe", r"broker\.conf:2: autoCreateTopicEnable='maybe'"),
        ("flushDiskType=NEVER", r"broker\.conf:2: flushDiskType is 'NEVER'"),
        ("brokerRole=KING", r"broker\.conf:2: brokerRole='KING'"),
        ("listenPort=1", r"broker\.conf:2: listenPort=1 "),
        ("transactionCheckInterval=0", r"broker\.conf:2: transactionCheckInterval=0"),
        ("flushDelayOffsetInterval=0", r"broker\.conf:2: flushDelayOffsetInterval=0"),
        ("fileReservedTime=-1", r"broker\.conf:2: fileReservedTime=-1"),
        ("key=\\u00zz", r"broker\.conf: line 2: \\u00zz"),
        (
            "aclReplayWindowMills=60000",
            r"broker\.conf:2: aclReplayWindowMills=60000: .*tls\.server\.mode=enforcing",
        ),
        ("messageDelayLevel=1s 5x", r"broker\.conf:2: messageDelayLevel has '5x'"),
    ],
)
def test_the_error_for_an_invalid_value_names_file_line_and_key(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, f"brokerName=a\n{line}\n"))


def test_the_error_for_an_unreadable_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.conf"):
        load_config(tmp_path / "nowhere.conf")


def test_a_refused_change_has_no_effect() -> None:
    config = BrokerConfig(broker_name="a")
    before = config.as_properties()
    with pytest.raises(ConfigError):
        config.apply({"traceOn": "false", "brokerRole": "KING"})
    assert config.as_properties() == before


def test_the_log_is_below_the_root_unless_it_has_its_own_path() -> None:
    config = BrokerConfig()
    config.apply({"storePathRootDir": "/data/a"})
    assert config.store.commit_log_dir == "/data/a/commitlog"
    config.apply({"storePathRootDir": "/data/b", "storePathCommitLog": "/fast"})
    assert config.store.commit_log_dir == "/fast"


def test_unknown_keys_are_reported_and_not_returned() -> None:
    config = BrokerConfig()
    assert config.apply({"secretKey": "12345", "traceOn": "false"}) == ["secretKey"]
    assert "secretKey" not in config.as_properties()
    assert config.as_properties()["brokerIP1"] == config.broker_ip1


def test_the_removed_replay_window_of_0_is_reported_as_without_effect(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, "aclReplayWindowMills=0\n"))
    assert loaded.unknown == [(1, "aclReplayWindowMills")]


def test_the_shown_configuration_can_be_read_again() -> None:
    config = BrokerConfig(broker_name="x", listen_port=1234)
    other = BrokerConfig()
    assert other.apply(config.as_properties()) == []
    assert other == config


def test_the_address_in_records_may_be_given_as_a_host_name() -> None:
    config = BrokerConfig(broker_ip1="localhost", listen_port=10911)
    assert config.store_host in {("127.0.0.1", 10911), ("::1", 10911)}
    with pytest.raises(ConfigError, match=r"brokerIP1='no such name'"):
        assert BrokerConfig(broker_ip1="no such name").store_host


@pytest.mark.parametrize("value", ["a\\u0000", "a\\ud800", "a\\nb", "a\\u2028b", "x" * 5000])
def test_a_value_with_a_line_break_prevents_the_start(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.conf:1: brokerName=") as error:
        load_config(write(tmp_path, f"brokerName={value}\n"))
    assert len(str(error.value)) < 500 and "\n" not in str(error.value)
