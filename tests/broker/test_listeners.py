"""Several listeners: routes have the address of the listener that was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.client import Message, Producer, PushConsumer
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.bodies import ClusterInfo, TopicRouteData
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.transport.client import RemotingClient

from .tool import Tool, config_of

OUTSIDE = "127.0.0.2"
"""Another address of this machine: another network."""


@asynccontextmanager
async def two_networks(folder: Path, **settings: object) -> AsyncIterator[tuple[Broker, str, str]]:
    """A broker with two listeners, and the addresses of its name server in both networks."""
    listeners = {"outside": (OUTSIDE, 0)}
    async with NameServer(port=0, listeners=listeners) as server:
        config = config_of(
            folder,
            namesrv_addr=server.address,
            listeners=f"outside={OUTSIDE}:0",
            answer_route_requests=True,
            **settings,
        )
        async with Broker(config) as broker:
            yield broker, server.address, f"{OUTSIDE}:{server.ports['outside']}"


async def address_in_route(client: RemotingClient, asked: str) -> str:
    answer = await Tool(asked, client).ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert answer.code == 0, answer.remark
    (broker,) = TopicRouteData.decode(answer.body).broker_datas
    return broker.broker_addrs[0]


async def test_routes_have_the_address_of_the_listener_of_the_request(tmp_path: Path) -> None:
    client = RemotingClient()
    async with two_networks(tmp_path) as (broker, inside, outside):
        await Tool(broker.address, client).create_topic("T")
        far = broker.config.advertised["outside"]
        assert broker.address.startswith("127.0.0.1:") and far.startswith(f"{OUTSIDE}:")
        for asked, expected in (
            (inside, broker.address),
            (outside, far),
            (broker.address, broker.address),
            (far, far),
        ):
            assert await address_in_route(client, asked) == expected
        for asked, expected in ((inside, broker.address), (outside, far)):
            answer = await Tool(asked, client).ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            info = ClusterInfo.decode(answer.body)
            assert info.broker_addr_table["b"].broker_addrs == {0: expected}
        await client.close()


async def test_clients_of_both_networks_exchange_messages(tmp_path: Path) -> None:
    async with two_networks(tmp_path, network_threads=2) as (_, inside, outside):
        for near, far in ((inside, outside), (outside, inside)):
            group = f"g-{near.replace('.', '-').replace(':', '-')}"
            async with Producer(near, group="p") as producer:
                await producer.send(Message(topic="T", body=b"hello"))
            async with PushConsumer(far, group=group, topics={"T": "*"}) as consumer:
                async for message in consumer:
                    assert message.body == b"hello"
                    break


async def test_lanes_serve_further_listeners(tmp_path: Path) -> None:
    client = RemotingClient()
    async with two_networks(tmp_path, network_threads=2) as (broker, _, _):
        far = Tool(broker.config.advertised["outside"], client)
        await far.create_topic("T")
        for _ in range(20):
            assert (await far.send("T")).code == 0
        assert broker._paths is not None
        assert sum(lane.path.sends.put_messages for lane in broker._paths.lanes) == 19
        await client.close()


async def test_an_advertised_address_may_be_any(tmp_path: Path) -> None:
    client = RemotingClient()
    name = "outside=broker.example.com:31911"
    async with two_networks(tmp_path, advertised_listeners=name) as (broker, inside, outside):
        await Tool(broker.address, client).create_topic("T")
        assert await address_in_route(client, outside) == "broker.example.com:31911"
        assert await address_in_route(client, inside) == broker.address
        await client.close()


@pytest.mark.parametrize(
    ("listeners", "advertised", "fault"),
    [
        ("outside=0.0.0.0:1", "", "cannot connect"),
        ("a=h:1", "b=h:2", "not in listeners"),
        ("a", "", "not an address"),
        ("a=h:99999", "", "not an address"),
        ("a=h:1,a=h:2", "", "of its own"),
        ("a b=h:1", "", "NAME=HOST:PORT"),
        (",".join(f"n{i}=h:1" for i in range(17)), "", "17 listeners"),
    ],
)
def test_invalid_listeners_are_refused(listeners: str, advertised: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        BrokerConfig(listeners=listeners, advertised_listeners=advertised)


async def test_a_registration_with_invalid_listeners_is_refused() -> None:
    from harness.name_server_peer import Peer

    from tests.namesrv.registration import register

    async with NameServer(port=0) as server, Peer(server.address) as peer:
        for text in ("x" * 5000, "a=h", "=h:1", "a=h:1;a=h:2"):
            assert (await register(peer, advertisedListeners=text)).code == 1
        assert server.routes.route("T") is None
        assert (await register(peer, advertisedListeners="a=h:1")).code == 0
        route = server.routes.route("T", "a")
        assert route is not None and route.broker_datas[0].broker_addrs == {0: "h:1"}
