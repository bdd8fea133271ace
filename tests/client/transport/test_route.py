"""Routes and name servers."""

import asyncio
import traceback

import pytest
from harness.fake_cluster import FakeCluster

from congreve.client import Message, Producer, PullConsumer
from congreve.client.errors import InvalidSettingError, NoNameServerError, RouteNotFoundError
from congreve.client.transport.instance import ClientInstance
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from tests.client.lookups import record_lookups


async def test_next_name_server_is_asked_when_one_fails() -> None:
    async with FakeCluster("a") as cluster:
        for addresses in (f"127.0.0.1:1;{cluster.address}", f"{cluster.address}; 127.0.0.1:1"):
            async with PullConsumer(addresses, group="cg") as consumer:
                for _ in range(4):
                    assert len((await consumer.routes.fetch("T")).queue_datas) == 1


async def test_the_error_names_each_name_server_that_failed() -> None:
    async with ClientInstance("127.0.0.1:1;127.0.0.1:2;nowhere.invalid:1") as client:
        with pytest.raises(NoNameServerError) as caught:
            await client.routes.find("T")
        for part in ("127.0.0.1:1", "127.0.0.1:2", "nowhere.invalid:1"):
            assert part in str(caught.value)


@pytest.mark.parametrize(
    ("addresses", "cure"),
    [
        ("10.0.0.1:9876,10.0.0.2:9876", "put ; between addresses"),
        ("http://10.0.0.1:9876", "write HOST:PORT without http://"),
        ("10.0.0.2:9876;10.0.0.1", "has no port: write HOST:PORT"),
        ("10.0.0.1:abc", "write HOST:PORT"),
        ("10.0.0.1:99999", "write HOST:PORT"),
        (":9876", "write HOST:PORT"),
        ("10.0.0.1:9876/", "write HOST:PORT"),
    ],
)
def test_an_error_names_the_cure_of_a_wrong_address(addresses: str, cure: str) -> None:
    with pytest.raises(InvalidSettingError, match=cure) as caught:
        Producer(addresses, group="p")
    assert shown_errors(caught.value) == 1


async def test_a_broker_is_told_apart_from_a_name_server() -> None:
    async with FakeCluster("a") as cluster:
        fake = cluster.brokers["a"]
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        fake.answers[code] = lambda it: it.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        broker = fake.address
        async with PullConsumer(broker, group="cg") as consumer:
            with pytest.raises(NoNameServerError, match=f"{broker} does not know request 105: is"):
                await consumer.routes.fetch("T")
        async with PullConsumer(f"{broker};{cluster.address}", group="cg") as consumer:
            for _ in range(4):
                assert (await consumer.routes.fetch("T")).queue_datas


async def test_a_silent_name_server_is_one_error_that_names_what_failed() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    async with silent, Producer(f"{host}:{port}", group="p") as producer:
        with pytest.raises(NoNameServerError, match="the message was not sent") as caught:
            await producer.send(Message(topic="T", body=b"x"), timeout_s=0.05)
    assert shown_errors(caught.value) == 1


def shown_errors(error: BaseException) -> int:
    return "".join(traceback.format_exception(error)).count("Traceback")


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


async def test_a_new_topic_is_not_sent_to_a_broker_without_write_permission() -> None:
    async with (
        FakeCluster("a", "b", topics=("TBW102",), queues=8) as cluster,
        Producer(cluster.address, group="pg") as producer,
    ):
        cluster.register("b", "TBW102", perm=5)
        assert {queue.broker_name for queue in await producer.queues("new")} == {"a"}


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
