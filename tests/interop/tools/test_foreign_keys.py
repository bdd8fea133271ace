"""The keys of RocketMQ's own configuration classes."""

import re
import subprocess

from harness import build

from congreve.broker.config import all_settings
from congreve.broker.foreign_keys import FOREIGN_KEYS

CLASSES = (
    "org.apache.rocketmq.common.BrokerConfig",
    "org.apache.rocketmq.store.config.MessageStoreConfig",
    "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig",
)


def test_every_key_of_4_9_4_has_an_effect_or_is_known_to_have_none() -> None:
    shown = subprocess.run(
        ["javap", "-public", "-cp", build.classpath(), *CLASSES],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    setters = set(re.findall(r"void set(\w+)\(", shown))
    keys = {name[0].lower() + name[1:] for name in setters}
    assert len(keys) > 150
    assert keys - all_settings().keys() == FOREIGN_KEYS
