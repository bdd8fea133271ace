"""Settings of the name server, read and changed as by mqadmin."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from harness.name_server_peer import Answer, Peer

from congreve.base.errors import CongreveError
from congreve.engine.state.state_file import StateFile
from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.bodies import KVTable

from .registration import register

T = TypeVar("T")


class MemoryStore:
    def __init__(self, text: str | None = None) -> None:
        self.text = text
        self.broken = False

    def load(self, parse: Callable[[str], T]) -> T | None:
        with suppress(CongreveError):
            return None if self.text is None else parse(self.text)
        return None

    def replace_checked(self, text: str, is_same: Callable[[str], bool]) -> None:
        if self.broken:
            raise CongreveError("disk full")
        assert is_same(text)
        self.text = text


async def test_key_value_settings_survive_a_restart() -> None:
    store = MemoryStore()
    setting = {"namespace": "N", "key": "k"}
    async with NameServer(port=0, kv_store=store) as server, Peer(server.address) as peer:
        assert (await peer.call(101, setting)).code == 22
        assert (await peer.call(219, {"namespace": "N"})).code == 22
        assert (await peer.call(100, {**setting, "value": "v;ü"})).code == 0
    assert store.text is not None
    assert json.loads(store.text) == {"configTable": {"N": {"k": "v;ü"}}}
    async with NameServer(port=0, kv_store=store) as server, Peer(server.address) as peer:
        assert (await peer.call(101, setting)).fields == {"value": "v;ü"}
        assert (await peer.call(219, {"namespace": "N"})).body == '{"table":{"k":"v;ü"}}'.encode()
        assert (await peer.call(102, setting)).code == 0
        assert (await peer.call(101, setting)).code == 22
    assert json.loads(store.text) == {"configTable": {"N": {}}}


async def test_setting_that_could_not_be_saved_is_not_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    setting = {"namespace": "N", "key": "k", "value": "v"}
    async with NameServer(port=0, kv_store=store) as server, Peer(server.address) as peer:
        store.broken = True
        answer = await peer.call(100, setting)
        assert answer.code == 1
        assert "disk full" in (answer.remark or "")
        assert (await peer.call(101, setting)).code == 22
    assert "disk full" in caplog.text and "Traceback" not in caplog.text


async def test_damaged_settings_do_not_prevent_a_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    for number, text in enumerate(("{", '{"configTable":{"N":3}}', "[" * 1000), 1):
        path.write_text(text)
        async with (
            NameServer(port=0, kv_store=StateFile(str(path))) as server,
            Peer(server.address) as peer,
        ):
            assert (await peer.call(101, {"namespace": "N", "key": "k"})).code == 22
        assert path.with_name(f"kvConfig.json.damaged-{number}").read_text() == text


def test_the_error_for_a_missing_settings_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = StateFile(str(tmp_path / "file" / "folder" / "kvConfig.json"))
    with pytest.raises(CongreveError, match=r"cannot write .*kvConfig\.json: Not a directory"):
        file.replace_checked("{}", lambda _: True)


@pytest.mark.parametrize("name", ["{x}", '{"topic":"T"}', "{", "a b", "$ref", '"', "\\", "ä", "0"])
async def test_no_setting_prevents_the_next_start(tmp_path: Path, name: str) -> None:
    file = StateFile(str(tmp_path / "kvConfig.json"))
    kept = {"namespace": "N", "key": "k", "value": "v"}
    hostile = {"namespace": name, "key": name, "value": name}
    async with NameServer(port=0, kv_store=file) as server, Peer(server.address) as peer:
        assert (await peer.call(100, kept)).code == 0
        code = (await peer.call(100, hostile)).code
    async with NameServer(port=0, kv_store=file) as server, Peer(server.address) as peer:
        assert (await peer.call(101, kept)).fields == {"value": "v"}
        again = await peer.call(101, hostile)
        assert (again.code, again.fields.get("value")) == ((0, name) if code == 0 else (22, None))


@pytest.mark.parametrize("name", ["{x}", "{}", "$ref", '{"a":{"b":1}}'])
async def test_a_setting_with_an_odd_name_does_not_stop_the_next_start(name: str) -> None:
    store = MemoryStore()
    setting = {"namespace": "ORDER_TOPIC_CONFIG", "key": name}
    async with NameServer(port=0, kv_store=store) as server, Peer(server.address) as peer:
        assert (await peer.call(100, {**setting, "value": "$"})).code == 0
        assert (await peer.call(100, {"namespace": name, "key": "k", "value": "v"})).code == 0
    async with NameServer(port=0, kv_store=store) as server, Peer(server.address) as peer:
        assert (await peer.call(101, setting)).fields == {"value": "$"}
        # Brokers read these settings in the answer to a registration.
        assert KVTable.decode((await register(peer)).body).table == {name: "$"}


async def test_order_settings_reach_brokers_and_with_the_switch_clients() -> None:
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert (await register(peer)).body == b""
        await peer.call(100, order)
        assert (await register(peer)).body == b'{"table":{"T":"broker-a:4"}}'
        assert b"orderTopicConf" not in (await peer.call(105, {"topic": "T"})).body
        assert (await peer.call(318, body=b"orderMessageEnable=true\n")).code == 0
        assert b'"orderTopicConf":"broker-a:4"' in (await peer.call(105, {"topic": "T"})).body


async def test_settings_are_shown_and_changed() -> None:
    config = NamesrvConfig(product_env_name="lab")
    async with NameServer(port=0, config=config) as server, Peer(server.address) as peer:
        lines = (await peer.call(319)).body.decode().splitlines()
        assert "orderMessageEnable=false" in lines
        assert "productEnvName=lab" in lines
        assert f"listenPort={server.port}" in lines
        assert not any(line.startswith("bindAddress") for line in lines)
        answer = await peer.call(318, body=b"productEnvName=x\norderMessageEnable=maybe")
        assert answer.code == 1
        assert "maybe" in (answer.remark or "")
        assert "productEnvName=lab" in (await peer.call(319)).body.decode()
        assert (await peer.call(318, body=b"# note\n\n")).code == 0


async def test_a_name_server_accepts_and_shows_only_known_settings() -> None:
    store = MemoryStore()
    async with NameServer(port=0, config_store=store) as server, Peer(server.address) as peer:
        before = (await peer.call(319)).body
        for change in (
            b"productEnvName=x\nnobodyKnows=1\n",
            b"productEnvName=x\nkvConfigPath=/tmp/elsewhere\n",
            b"productEnvName=x\nlistenPort=1\n",
            b"productEnvName=a\x00b\n",
            b"productEnvName=" + b"x" * 5_000,
            b"productEnvName=x\n" + b"# note\n" * 20_000,
        ):
            answer = await peer.call(318, body=change)
            assert answer.code == 1 and len(answer.remark or "") < 400, change
        assert (await peer.call(319)).body == before
        assert store.text is None


async def test_a_changed_setting_is_saved_before_it_is_answered() -> None:
    store = MemoryStore()
    async with NameServer(port=0, config_store=store) as server, Peer(server.address) as peer:
        assert (await peer.call(318, body=b"productEnvName=lab\n")).code == 0
        saved = store.text.splitlines()
        assert {"orderMessageEnable=false", "productEnvName=lab"} < set(saved)
        store.broken = True
        assert (await peer.call(318, body=b"productEnvName=x\n")).code == 1
        assert server.config.product_env_name == "lab"
    for text, name in ((store.text, "lab"), ("productEnvName=a\n=broken", "center")):
        store = MemoryStore(text)
        async with NameServer(port=0, config_store=store) as server:
            assert server.config.product_env_name == name


async def test_settings_over_the_limit_are_refused_and_known_ones_change() -> None:
    config = NamesrvConfig(max_kv_settings=5)
    async with NameServer(port=0, config=config) as server, Peer(server.address) as peer:

        async def put(namespace: str, key: str, value: str = "v") -> Answer:
            return await peer.call(100, {"namespace": namespace, "key": key, "value": value})

        answers = [await put(f"n{i % 3}", f"k{i}") for i in range(20)]
        assert [answer.code for answer in answers] == [0] * 5 + [1] * 15
        assert "maxKvSettings" in (answers[5].remark or "")
        assert (await put("n0", "k0", "w")).code == 0
        assert (await peer.call(102, {"namespace": "n1", "key": "k1"})).code == 0
        assert (await put("n1", "again")).code == 0


async def test_the_bytes_of_settings_are_limited_and_freed_by_deletion(tmp_path: Path) -> None:
    config = NamesrvConfig(max_kv_bytes=1_000)
    store = StateFile(str(tmp_path / "kvConfig.json"))

    async def put(peer: Peer, key: str, value: str) -> Answer:
        return await peer.call(100, {"namespace": "n", "key": key, "value": value})

    async with (
        NameServer(port=0, config=config, kv_store=store) as server,
        Peer(server.address) as peer,
    ):
        answers = [await put(peer, f"k{i}", "v" * 300) for i in range(6)]
        assert [answer.code for answer in answers] == [0] * 3 + [1] * 3
        assert "maxKvBytes" in (answers[3].remark or "")
        assert (await put(peer, "k0", "w" * 300)).code == 0
        assert (await peer.call(102, {"namespace": "n", "key": "k1"})).code == 0
    async with (
        NameServer(port=0, config=config, kv_store=store) as server,
        Peer(server.address) as peer,
    ):
        assert (await put(peer, "k0", "w" * 800)).code == 1
        assert (await put(peer, "k4", "v" * 300)).code == 0
        assert (await put(peer, "k5", "v" * 300)).code == 1
