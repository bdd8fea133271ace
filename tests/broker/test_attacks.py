"""The requests of published attacks on RocketMQ: each is refused and leaves nothing behind.

CVE-2023-33246 (broker settings run a command), CVE-2023-37582 (name server settings write a file),
CVE-2019-17572 (a topic's name is a path).
"""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.engine.state.state_file import StateFile
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from .guarded import guarded
from .tool import Tool, config_of

UPDATE_BROKER_CONFIG, UPDATE_NAMESRV_CONFIG = 25, 318


def frame(code: int, body: str) -> bytes:
    """A request as the published programs write it: JSON header without ext fields."""
    header = json.dumps(
        {
            "code": code,
            "flag": 0,
            "language": "JAVA",
            "opaque": 0,
            "serializeTypeCurrentRPC": "JSON",
            "version": 395,
        },
        separators=(",", ":"),
    ).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body.encode()


async def answer_to(address: str, request: bytes) -> RemotingCommand:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        size = await asyncio.wait_for(reader.readexactly(4), 60)
        rest = await asyncio.wait_for(reader.readexactly(*struct.unpack(">I", size)), 60)
        return RemotingCommand.decode(size + rest)
    finally:
        writer.close()


def command_settings(marker: Path) -> list[str]:
    """Bodies of CVE-2023-33246: the shell of the filter server's start runs rocketmqHome."""
    touch = f"touch {marker}"
    return [
        f"filterServerNums=1\nrocketmqHome=-c $@|sh . echo {touch};\n",
        f"rocketmqHome=-c $@|sh . echo {touch};\nfilterServerNums=1\nbrokerPermission=6\n",
        f"brokerPermission=6\nfilterServerNums=1\nrocketmqHome=`{touch}`",
        f"rocketmqHome={marker}",
    ]


async def test_broker_settings_run_no_command(tmp_path: Path) -> None:
    conf, marker = tmp_path / "broker.conf", tmp_path / "marker"
    conf.write_text("brokerPermission=6\n")
    async with Broker(config_of(tmp_path / "store"), config_path=conf) as broker:
        before = broker.config.as_properties()
        for body in command_settings(marker):
            answer = await answer_to(broker.address, frame(UPDATE_BROKER_CONFIG, body))
            assert (answer.code, "not a setting" in (answer.remark or "")) == (1, True)
        assert broker.config.as_properties() == before
    assert conf.read_text() == "brokerPermission=6\n"
    assert not marker.exists()


async def test_broker_settings_need_an_administrator(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    async with guarded(tmp_path) as (broker, _):
        for body in command_settings(marker):
            answer = await answer_to(broker.address, frame(UPDATE_BROKER_CONFIG, body))
            assert (answer.code, "AclException" in (answer.remark or "")) == (1, True)
    assert not marker.exists()


@pytest.mark.parametrize("key", ["configStorePath", "kvConfigPath", "rocketmqHome", "kvConfigFile"])
async def test_name_server_settings_write_no_file(key: str, tmp_path: Path) -> None:
    own, marker = tmp_path / "namesrv.properties", tmp_path / "marker"
    async with NameServer(port=0, config_store=StateFile(str(own))) as server:
        for first, second in (
            (f"{key}={marker}", "productEnvName=center\\n* * * * * root id"),
            ("productEnvName=center\\n* * * * * root id", f"{key}={marker}"),
        ):
            body = f"{first}\n{second}\n"
            answer = await answer_to(server.address, frame(UPDATE_NAMESRV_CONFIG, body))
            assert (answer.code, key in (answer.remark or "")) == (1, True)
        assert server.config.product_env_name == "center"
    assert not marker.exists()
    assert not own.exists()


PATHS = ("../../../../escaped", "..\\escaped", "/escaped", ".", "..", "a/b", "%RETRY%../escaped")


async def test_names_cannot_be_used_as_paths(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b" / "c" / "d" / "store"
    client = RemotingClient()
    async with Broker(config_of(root)) as broker:
        tool = Tool(broker.address, client)
        for name in PATHS:
            assert (await tool.send(name)).code == 1
            assert (await tool.create_topic(name)).code == 1
            await tool.heart_beat(name, name)
            group = {"groupName": name, "retryMaxTimes": 16, "retryQueueNums": 1}
            assert (await tool.ask(200, body=json.dumps(group).encode())).code == 1
            pull = {"consumerGroup": name, "topic": name, "queueId": "0", "queueOffset": "0"}
            pull |= {"maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "subVersion": "0"}
            pull |= {"suspendTimeoutMillis": "0", "subscription": "*"}
            assert (await tool.ask(11, pull)).code != 0
            back = {"group": name, "offset": "0", "delayLevel": "1", "originTopic": name}
            assert (await tool.ask(36, back)).code != 0
        metadata = broker.managers.metadata
        for table in (metadata.topics.table, metadata.groups.table):
            assert not [name for name in table if "/" in name or "\\" in name or "." in name]
        queues = root / "consumequeue"
        assert not [path for path in queues.rglob("*") if "escaped" in path.name]
        await client.close()
    assert not list(tmp_path.rglob("escaped"))
