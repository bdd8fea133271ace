"""The name server over its socket, with the requests of Java clients and mqadmin."""

import zlib

from harness.name_server_peer import Peer

from congreve.namesrv.server import NameServer

from .registration import BODY, ROUTE, register


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


async def test_an_unknown_request_code_gets_response_code_3() -> None:
    async with NameServer(port=0) as server, Peer(server.address) as peer:
        answer = await peer.call(9999)
        assert answer.code == 3
        assert "9999" in (answer.remark or "")


async def test_the_connection_of_an_expired_broker_is_closed() -> None:
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
