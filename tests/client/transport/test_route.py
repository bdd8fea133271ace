"""Routes and name servers."""

import asyncio

import pytest
from harness.fake_cluster import FakeCluster

from congreve.client import Producer, PullConsumer
from congreve.client.errors import NoNameServerError, RouteNotFoundError
from congreve.client.transport.instance import ClientInstance
from congreve.namesrv.server import NameServer
from tests.client.lookups import record_lookups


async def test_next_name_server_is_asked_when_one_fails() -> None:
    async with FakeCluster("a") as cluster:
        for addresses in (f"127.0.0.1:1;{cluster.address}", f"{cluster.address}; 127.0.0.1:1"):
            async with PullConsumer(addresses, group="cg") as consumer:
                for _ in range(4):
                    assert len((await consumer.routes.fetch("T")).queue_datas) == 1


async def test_the_error_names_each_name_server_that_failed() -> None:
    async with ClientInstance("127.0.0.1:1;127.0.0.1:2;nonsense") as client:
        with pytest.raises(NoNameServerError) as caught:
            await client.routes.find("T")
        for part in ("127.0.0.1:1", "127.0.0.1:2", "nonsense"):
            assert part in str(caught.value)


async def test_simultaneous_lookups_send_one_request() -> None:
    async with FakeCluster("a") as cluster, ClientInstance(cluster.address) as client:
        asked = record_lookups(client.routes)
        routes = await asyncio.gather(*(client.routes.find("T") for _ in range(50)))
        assert len(asked) == 1
        assert all(route is routes[0] for route in routes)


async def test_a_cancelled_lookup_does_not_affect_the_others() -> None:
    async with FakeCluster("a") as cluster, ClientInstance(cluster.address) as client:
        one, other = (asyncio.create_task(client.routes.find("T")) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        assert (await other).topic == "T"


async def test_a_refresh_applies_changes_and_keeps_topics_that_vanished() -> None:
    async with FakeCluster("a", "b") as cluster, ClientInstance(cluster.address) as client:
        assert len((await client.routes.find("T")).write_queues) == 4
        assert not await client.routes.refresh()
        cluster.register("b", "T", perm=4)
        assert await client.routes.refresh()
        route = await client.routes.find("T")
        assert (len(route.write_queues), len(route.read_queues)) == (2, 4)
        cluster.name_server.routes.delete_topic("T")
        assert not await client.routes.refresh()
        assert await client.routes.find("T") is route


async def test_refresh_without_name_server_keeps_routes() -> None:
    async with FakeCluster("a") as cluster, ClientInstance(cluster.address) as client:
        route = await client.routes.find("T")
        await cluster.name_server.stop()
        assert not await client.routes.refresh()
        assert await client.routes.find("T") is route


async def test_an_inherited_route_is_used_only_by_senders_until_the_topic_exists() -> None:
    async with (
        FakeCluster("a", topics=("TBW102",), queues=8) as cluster,
        Producer(cluster.address, group="pg") as producer,
    ):
        assert len(await producer.queues("new")) == 4
        with pytest.raises(RouteNotFoundError):
            await producer.routes.find("new")
        cluster.register("a", "new", perm=6)
        cluster.register("a", "new", "other", perm=2)
        assert await producer.routes.refresh()
        assert len(await producer.queues("new")) == 8


async def test_order_conf_overrides_the_queues() -> None:
    async with FakeCluster("a", "b") as cluster, ClientInstance(cluster.address) as client:
        server: NameServer = cluster.name_server
        server.config.order_message_enable = True
        await server.kv.put("ORDER_TOPIC_CONFIG", "T", "b:3;a:1;c:x;")
        queues = (await client.routes.find("T")).write_queues
        assert [(q.broker_name, q.queue_id) for q in queues] == [
            ("b", 0),
            ("b", 1),
            ("b", 2),
            ("a", 0),
        ]
