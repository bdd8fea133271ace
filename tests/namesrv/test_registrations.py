"""Registrations over the name server's socket, as Java brokers send them."""

import asyncio
import gc
import json
import struct
import time
import zlib
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import cast

import pytest
from harness.name_server_peer import Peer
from harness.slowness import limit_s

from congreve.namesrv.broker_processor import TINY_REGISTRATION, BrokerProcessor
from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.kvconfig import KvConfig
from congreve.namesrv.routes import RouteTable
from congreve.namesrv.server import NameServer
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.register_body import (
    INFLATED_MAX,
    TOPICS_MAX,
    read_registration,
    write_registration,
)
from congreve.remoting.transport.connection import Connection

from .registration import BODY, BROKER, ROUTE, VERSION, WRAPPER, register

IDENTITY = {key: BROKER[key] for key in ("brokerName", "brokerAddr", "clusterName", "brokerId")}


def compressed(*pieces: bytes | int) -> bytes:
    packed = (
        struct.pack(">i", piece)
        if isinstance(piece, int)
        else struct.pack(">i", len(piece)) + piece
        for piece in pieces
    )
    return zlib.compress(b"".join(packed), 9)


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


async def test_a_compressed_registration_is_read() -> None:
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


@pytest.mark.parametrize("attributes", [b"", b'{"message.type":"FIFO"}'])
async def test_a_broker_of_rocketmq_5_may_compress_its_registration(attributes: bytes) -> None:
    body = compressed(VERSION.encode(), 1, b"T 4 4 6 SINGLE_TAG " + attributes, b"[]")
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        assert (await register(peer, body, compressed="true")).code == 0


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
    assert min([await longest_turn(body, form) for _ in range(3)]) < limit_s(0.005)


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


async def test_a_data_version_query_returns_the_known_version() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        answer = await peer.call(322, IDENTITY, VERSION.encode())
        assert (answer.fields, answer.body) == ({"changed": "true"}, b"")
        await register(peer)
        answer = await peer.call(322, IDENTITY, VERSION.encode())
        assert (answer.fields, answer.body) == ({"changed": "false"}, VERSION.encode())
        answer = await peer.call(322, IDENTITY, b'{"counter":4,"timestamp":1690000000000}')
        assert (answer.fields, answer.body) == ({"changed": "true"}, VERSION.encode())


async def test_a_registration_over_the_limit_leaves_no_partial_broker() -> None:
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


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        BODY.replace(b'"perm":6', b'"perm":"6"'),
        BODY.replace(b'"perm":6', b'"perm":null'),
        BODY.replace(b'"perm":6', b'"perm":6.0,"unknown":{"a":[1]}'),
        BODY.replace(b'"perm":6', b"perm:6"),
        BODY.replace(b'"perm":6', b'"perm":1,"perm":6'),
        BODY.replace(b'"order":false,', b""),
        BODY.replace(b'"T"', b'"\\ud800"'),
    ],
)
def test_one_pass_reads_what_the_tolerant_way_reads(text: bytes) -> None:
    assert read_registration(text, 401, compressed=False) == RegisterBrokerBody.decode(text)


async def test_other_requests_wait_for_one_registration_however_many_there_are() -> None:
    """Brokers register at the same time when their name server has started again."""
    routes, turns = RouteTable(time.monotonic), 3
    processor = BrokerProcessor(routes, KvConfig(None, NamesrvConfig()), Pieces())
    handler = processor.handlers()[RequestCode.REGISTER_BROKER]
    table = {f"{n:0100d}": TopicConfig(f"{n:0100d}") for n in range(TINY_REGISTRATION // 100)}
    wrapper = TopicConfigSerializeWrapper(table, DataVersion(counter=1, timestamp=1))
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()

    async def registered(number: int) -> RemotingCommand:
        fields = {**IDENTITY, "brokerName": f"b{number}", "brokerAddr": f"10.0.0.1:{number}"}
        texts = {key: str(value) for key, value in fields.items()} | {"haServerAddr": "10.0.0.1:1"}
        request = RemotingCommand(
            code=RequestCode.REGISTER_BROKER, ext_fields=texts, body=body, version=401
        )
        answer = handler(request, cast(Connection, SimpleNamespace(closed=False)))
        assert isinstance(answer, Awaitable)
        return await answer

    waiting = [asyncio.create_task(registered(number)) for number in range(50)]
    for _ in range(turns):
        await asyncio.sleep(0)
    assert len(routes.cluster_info().broker_addr_table) <= turns
    answers = await asyncio.gather(*waiting)
    assert {answer.code for answer in answers} == {0}
    assert len(routes.cluster_info().broker_addr_table) == len(waiting)
