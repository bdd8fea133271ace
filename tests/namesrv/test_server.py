"""The name server over its socket, asked as Java brokers, clients and mqadmin ask."""

import asyncio
import gc
import json
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from harness.name_server_peer import Answer, Peer

from congreve.engine.state.state_file import StateFile
from congreve.errors import CongreveError
from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.register_body import INFLATED_MAX, TOPICS_MAX, write_registration

T = TypeVar("T")

BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": 0,
}
IDENTITY = {key: BROKER[key] for key in ("brokerName", "brokerAddr", "clusterName", "brokerId")}
VERSION = '{"counter":3,"timestamp":1690000000000}'
TOPIC = (
    '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    '"topicName":"T","topicSysFlag":0,"writeQueueNums":4}'
)
WRAPPER = f'{{"dataVersion":{VERSION},"topicConfigTable":{{"T":{TOPIC}}}}}'
BODY = f'{{"filterServerList":[],"topicConfigSerializeWrapper":{WRAPPER}}}'.encode()

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{%s:"127.0.0.1:10911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
    b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)


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


async def register(peer: Peer, body: bytes = BODY, version: int = 401, **more: object) -> Answer:
    return await peer.call(103, {**BROKER, **more}, body, version)


def compressed(*pieces: bytes | int) -> bytes:
    packed = (
        struct.pack(">i", piece)
        if isinstance(piece, int)
        else struct.pack(">i", len(piece)) + piece
        for piece in pieces
    )
    return zlib.compress(b"".join(packed), 9)


async def test_route_is_standard_json_for_4_9_4_and_on_request() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert (await register(peer, bodyCrc32=zlib.crc32(BODY) & 0x7FFFFFFF)).code == 0
        assert (await peer.call(105, {"topic": "T"})).body == ROUTE % b'"0"'
        old = {"topic": "T", "acceptStandardJsonOnly": "true"}
        assert (await peer.call(105, old, version=400)).body == ROUTE % b'"0"'


async def test_route_for_older_clients_has_bare_integer_keys() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        await register(peer)
        assert (await peer.call(105, {"topic": "T"}, version=317)).body == ROUTE % b"0"


async def test_unknown_topic_is_code_17() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        answer = await peer.call(105, {"topic": "nowhere"})
        assert answer.code == 17
        assert "nowhere" in (answer.remark or "")


async def test_damaged_registration_is_refused() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        answer = await register(peer, bodyCrc32=1)
        assert (answer.code, answer.remark) == (1, "crc32 not match")
        assert (await peer.call(105, {"topic": "T"})).code == 17


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"topicConfigSerializeWrapper":3}'])
async def test_unreadable_registration_is_code_1_and_changes_nothing(body: bytes) -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert (await register(peer, body)).code == 1
        assert json.loads((await peer.call(106)).body)["brokerAddrTable"] == {}


async def test_compressed_registration() -> None:
    body = compressed(VERSION.encode(), 2, b"T 4 4 6 SINGLE_TAG", b"U 1 2 4 MULTI_TAG", b"[]")
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert (await register(peer, body, compressed="true")).code == 0
        assert (await peer.call(105, {"topic": "T"})).body == ROUTE % b'"0"'
        (queue,) = json.loads((await peer.call(105, {"topic": "U"})).body)["queueDatas"]
        assert (queue["readQueueNums"], queue["writeQueueNums"], queue["perm"]) == (1, 2, 4)


@pytest.mark.parametrize(
    "body",
    [
        b"not zlib",
        compressed(VERSION.encode(), 1),
        compressed(VERSION.encode(), 1, b"T 4 4 6", b"[]"),
        compressed(VERSION.encode(), 1, b"T x 4 6 SINGLE_TAG", b"[]"),
        compressed(VERSION.encode(), 0, b"[]")[:-6],
    ],
)
async def test_damaged_compressed_registration_is_code_1(body: bytes) -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert (await register(peer, body, compressed="true")).code == 1


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (zlib.compress(bytes(INFLATED_MAX + 1)), "inflates"),
        (compressed(VERSION.encode(), TOPICS_MAX + 1), "topics"),
        (compressed(VERSION.encode(), 2**31 - 1), "topics"),
        (compressed(VERSION.encode(), 1, b"T" + b" 1" * 1_000_000, b"[]"), "fields"),
        (compressed(VERSION.encode(), 1, b"T %d 1 6 S" % 2**31, b"[]"), "2147483648"),
    ],
    ids=["bomb", "topics", "most topics", "fields", "number"],
)
async def test_a_registration_made_to_be_costly_is_refused(body: bytes, remark: str) -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        answer = await register(peer, body, compressed="true")
        assert answer.code == 1 and remark in (answer.remark or "")
        assert json.loads((await peer.call(106)).body)["brokerAddrTable"] == {}


@pytest.mark.parametrize("form", ["true", "false"])
async def test_a_registration_of_many_topics_does_not_hold_the_event_loop(form: str) -> None:
    topics = {f"T{i}": TopicConfig(topic_name=f"T{i}") for i in range(30_000)}
    wrapper = TopicConfigSerializeWrapper(topic_config_table=topics)
    whole = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    body = write_registration(whole, compressed=form == "true")
    assert min([await longest_turn(body, form) for _ in range(3)]) < 0.005


async def longest_turn(body: bytes, form: str) -> float:
    """CPU seconds of the event loop's longest turn while a registration is served."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            started = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - started)

    async with NameServer(port=0) as server, Peer(server.address) as peer:
        gc.disable()  # the collector of unused objects may run at any time
        watching = asyncio.create_task(watch())
        try:
            assert (await register(peer, body, compressed=form)).code == 0
        finally:
            gc.enable()
        watching.cancel()
        assert len(json.loads((await peer.call(206)).body)["topicList"]) == 30_000
    return longest


async def test_broker_before_3_0_11_sends_its_topics_alone() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert (await register(peer, WRAPPER.encode(), version=36)).code == 0
        assert (await peer.call(105, {"topic": "T"})).code == 0


async def test_registration_without_body_brings_no_topics() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert (await register(peer, b"")).code == 0
        answer = await peer.call(322, IDENTITY, b'{"counter":0,"timestamp":0}')
        assert answer.fields == {"changed": "false"}


async def test_missing_header_field_is_named() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        answer = await peer.call(103, {"brokerName": "broker-a"}, BODY)
        assert answer.code == 1
        assert "brokerAddr" in (answer.remark or "")


async def test_slave_learns_its_master() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert "masterAddr" not in (await register(peer)).fields
        async with Peer(server.address) as slave:
            answer = await register(slave, brokerAddr="127.0.0.2:10911", brokerId=1)
            assert answer.fields == {
                "masterAddr": "127.0.0.1:10911",
                "haServerAddr": "127.0.0.1:10912",
            }


async def test_closed_connection_and_unregistration_remove_the_broker() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as asker:
        async with Peer(server.address) as broker:
            await register(broker)
            assert (await asker.call(105, {"topic": "T"})).code == 0
        for _ in range(100):
            if (await asker.call(105, {"topic": "T"})).code == 17:
                break
        assert (await asker.call(105, {"topic": "T"})).code == 17
        await register(asker)
        assert (await asker.call(104, IDENTITY)).code == 0
        assert (await asker.call(105, {"topic": "T"})).code == 17


async def test_data_version_query_tells_what_is_known() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        answer = await peer.call(322, IDENTITY, VERSION.encode())
        assert (answer.fields, answer.body) == ({"changed": "true"}, b"")
        await register(peer)
        answer = await peer.call(322, IDENTITY, VERSION.encode())
        assert (answer.fields, answer.body) == ({"changed": "false"}, VERSION.encode())
        answer = await peer.call(322, IDENTITY, b'{"counter":4,"timestamp":1690000000000}')
        assert (answer.fields, answer.body) == ({"changed": "true"}, VERSION.encode())


async def test_cluster_info_and_lists_in_the_reference_shapes() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        await register(peer)
        assert (await peer.call(106)).body == (
            b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911"},'
            b'"brokerName":"broker-a","cluster":"DefaultCluster"}},'
            b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
        )
        assert (await peer.call(206)).body == b'{"topicList":["T"]}'
        assert (await peer.call(224, {"cluster": "DefaultCluster"})).body == b'{"topicList":["T"]}'
        assert (await peer.call(304)).body == (
            b'{"brokerAddr":"127.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'
        )
        for code in (311, 312, 313):
            assert (await peer.call(code)).body == b'{"topicList":[]}'


async def test_write_permission_is_wiped_and_added() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        await register(peer)
        name = {"brokerName": "broker-a"}
        assert (await peer.call(205, name)).fields == {"wipeTopicCount": "1"}
        assert b'"perm":4' in (await peer.call(105, {"topic": "T"})).body
        assert (await peer.call(327, name)).fields == {"addTopicCount": "1"}
        assert b'"perm":6' in (await peer.call(105, {"topic": "T"})).body


async def test_topic_is_deleted() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        await register(peer)
        assert (await peer.call(216, {"topic": "T", "clusterName": "elsewhere"})).code == 0
        assert (await peer.call(105, {"topic": "T"})).code == 0
        assert (await peer.call(216, {"topic": "T"})).code == 0
        assert (await peer.call(105, {"topic": "T"})).code == 17


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


async def test_damaged_settings_do_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    for number, text in enumerate(("{", '{"configTable":{"N":3}}', "[" * 1000), 1):
        path.write_text(text)
        async with (
            NameServer(port=0, kv_store=StateFile(str(path))) as server,
            Peer(server.address) as peer,
        ):
            assert (await peer.call(101, {"namespace": "N", "key": "k"})).code == 22
        assert path.with_name(f"kvConfig.json.damaged-{number}").read_text() == text


def test_settings_without_a_folder_to_keep_them_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = StateFile(str(tmp_path / "file" / "folder" / "kvConfig.json"))
    with pytest.raises(CongreveError, match=r"cannot write .*kvConfig\.json: Not a directory"):
        file.replace_checked("{}", lambda _: True)


@pytest.mark.parametrize("name", ["{x}", '{"topic":"T"}', "{", "a b", "$ref", '"', "\\", "ä", "0"])
async def test_no_setting_keeps_the_name_server_from_starting_again(
    tmp_path: Path, name: str
) -> None:
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
        answer = await peer.call(318, body=b"productEnvName=x\norderMessageEnable=maybe")
        assert answer.code == 1
        assert "maybe" in (answer.remark or "")
        assert "productEnvName=lab" in (await peer.call(319)).body.decode()
        assert (await peer.call(318, body=b"# note\n\n")).code == 0


async def test_a_name_server_takes_and_shows_only_settings_that_it_knows() -> None:
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


async def test_unknown_code_gets_code_3_and_not_silence() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        answer = await peer.call(9999)
        assert answer.code == 3
        assert "9999" in (answer.remark or "")


async def test_expired_broker_is_cut_off() -> None:
    now = 0.0
    async with (
        NameServer(port=0, clock=lambda: now) as server,
        Peer(server.address) as broker,
        Peer(server.address) as asker,
    ):
        await register(broker)
        now = 121.0
        server._drop_expired()
        assert (await asker.call(105, {"topic": "T"})).code == 17
        assert await broker._reader.read() == b""


async def test_settings_over_the_limit_are_refused_and_known_ones_change() -> None:
    config = NamesrvConfig(max_kv_settings=5)
    async with NameServer(port=0, config=config) as server, Peer(server.address) as peer:

        async def put(namespace: str, key: str, value: str = "v") -> Answer:
            return await peer.call(100, {"namespace": namespace, "key": key, "value": value})

        told = [await put(f"n{i % 3}", f"k{i}") for i in range(20)]
        assert [answer.code for answer in told] == [0] * 5 + [1] * 15
        assert "maxKvSettings" in (told[5].remark or "")
        assert (await put("n0", "k0", "w")).code == 0
        assert (await peer.call(102, {"namespace": "n1", "key": "k1"})).code == 0
        assert (await put("n1", "again")).code == 0


async def test_bytes_of_settings_are_limited_and_come_back(tmp_path: Path) -> None:
    config = NamesrvConfig(max_kv_bytes=1_000)
    store = StateFile(str(tmp_path / "kvConfig.json"))

    async def put(peer: Peer, key: str, value: str) -> Answer:
        return await peer.call(100, {"namespace": "n", "key": key, "value": value})

    async with (
        NameServer(port=0, config=config, kv_store=store) as server,
        Peer(server.address) as peer,
    ):
        told = [await put(peer, f"k{i}", "v" * 300) for i in range(6)]
        assert [answer.code for answer in told] == [0] * 3 + [1] * 3
        assert "maxKvBytes" in (told[3].remark or "")
        assert (await put(peer, "k0", "w" * 300)).code == 0
        assert (await peer.call(102, {"namespace": "n", "key": "k1"})).code == 0
    async with (
        NameServer(port=0, config=config, kv_store=store) as server,
        Peer(server.address) as peer,
    ):
        assert (await put(peer, "k0", "w" * 800)).code == 1
        assert (await put(peer, "k4", "v" * 300)).code == 0
        assert (await put(peer, "k5", "v" * 300)).code == 1


async def test_a_large_registration_over_the_limit_leaves_no_half_of_a_broker() -> None:
    config = NamesrvConfig(max_topics=2_500)
    table = {f"T{i:05}": TopicConfig(topic_name=f"T{i:05}") for i in range(3_000)}
    wrapper = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1, timestamp=1), topic_config_table=table
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=[])
    fields = {
        "brokerName": "b",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "c",
        "haServerAddr": "10.0.0.1:10912",
        "brokerId": 0,
    }
    async with NameServer(port=0, config=config) as server, Peer(server.address) as peer:
        answer = await peer.call(103, fields, body.encode())
        assert answer.code == 1 and "maxTopics" in (answer.remark or "")
        assert server.routes.topics().topic_list == []
        assert server.routes.data_version("10.0.0.1:10911") is None
