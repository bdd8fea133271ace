"""Every setting over the network: which may change, which values, and which are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness.name_server_peer import Peer

from congreve.base.settings import Setting, table_of
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig, all_settings
from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.server import NameServer
from congreve.remoting.transport.client import RemotingClient

from .tool import Tool, config_of

NOT_OVER_THE_NETWORK = re.compile(
    "path|folder|dir$|address|addr|ip[12]|port$|password|secret|accesskey|warehouse|catalog"
    "|properties|command|home|file$|cert",
    re.IGNORECASE,
)
"""Keys of paths, listeners and secrets."""
PUBLIC = re.compile("ip[12]$|port$|^namesrvAddr|^ha.*Address", re.IGNORECASE)
"""Of these, what registrations or routes announce."""


def wrong_texts(setting: Setting) -> list[str]:
    """Texts that are not a value of the setting."""
    if setting.range is not None:
        low, high = setting.range
        return [str(low - 1), str(high + 1), "x", "1.5", "", "9" * 40]
    if setting.type is bool:
        return ["maybe", "", "2"]
    return ["a\\u0000b", "a\\ud800", "x" * 5000]


def test_paths_listeners_and_secrets_cannot_be_changed_or_shown() -> None:
    for key, setting in all_settings().items():
        is_limit = setting.type is int and not key.endswith("Port")
        if not is_limit and NOT_OVER_THE_NETWORK.search(key.removesuffix("AddressQuota")):
            assert setting.change is None, key
            if not PUBLIC.search(key):
                assert not setting.shown, key
    for key, setting in table_of(NamesrvConfig).items():
        assert setting.change is None or not NOT_OVER_THE_NETWORK.search(key), key


async def test_every_key_of_a_broker_is_checked(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("")
    client = RemotingClient()
    async with Broker(config_of(tmp_path / "store"), config_path=conf) as broker:
        tool = Tool(broker.address, client)
        before = broker.config.as_properties()
        for key, setting in all_settings().items():
            answer = await tool.ask(25, body=f"{key}={before[key]}\n".encode())
            allowed = setting.change is not None
            assert (answer.code == 0) == allowed, (key, answer.remark)
            for text in wrong_texts(setting):
                refused = await tool.ask(25, body=f"{key}={text}\n".encode())
                assert refused.code == 1, (key, text)
        assert broker.config.as_properties() == before
        shown = (await tool.ask(26)).body.decode()
        keys = {line.partition("=")[0] for line in shown.splitlines()}
        hidden = {key for key, setting in all_settings().items() if not setting.shown}
        assert {"storePathRootDir", "aclFolder", "brokerAccessKey", "bindAddress"} <= hidden
        assert not keys & hidden
        assert str(tmp_path) not in shown
        await client.close()


async def test_every_key_of_a_name_server_is_checked() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        for key, setting in table_of(NamesrvConfig).items():
            value = getattr(server.config, setting.field)
            text = str(value).lower() if setting.type is bool else str(value)
            code = (await peer.call(318, body=f"{key}={text}\n".encode())).code
            assert (code == 0) == (setting.change is not None), key
            wrong = [text for text in wrong_texts(setting) if "\\" not in text]
            for text in wrong:
                assert (await peer.call(318, body=f"{key}={text}\n".encode())).code == 1, (
                    key,
                    text,
                )
        for key in ("configStorePath", "kvConfigPath", "rocketmqHome", "listenPort", "bindAddress"):
            assert (await peer.call(318, body=f"{key}=1\n".encode())).code == 1
        assert server.config == NamesrvConfig()
        shown = (await peer.call(319)).body.decode()
        assert "Path" not in shown and "Home" not in shown


@pytest.mark.parametrize("config", [BrokerConfig, NamesrvConfig])
def test_numbers_that_may_change_have_a_range(config: type) -> None:
    for key, setting in table_of(config).items():
        if setting.change is not None and setting.type is int:
            assert setting.range is not None, key
