"""The console while brokers are down."""

from __future__ import annotations

import asyncio

import congreve
from congreve.client import AdminClient
from congreve.console.web.options import Options
from congreve.remoting.messages.admin_headers import RegisterBrokerRequestHeader
from congreve.remoting.messages.bodies import RegisterBrokerBody
from congreve.remoting.messages.codes import RequestCode
from tests.console.web.conftest import ADMIN, ADMIN_SECRET, login, serve_console

DEAD = "127.0.0.1:1"


def look_without_brokers(namesrv: str) -> None:
    for console in serve_console(Options(namesrv=namesrv)):
        assert "No broker is registered" in console.page("/")
        assert "no broker" in login(console, ADMIN, ADMIN_SECRET, 404)


def look_with_a_dead_broker(namesrv: str) -> None:
    for console in serve_console(Options(namesrv=namesrv)):
        assert DEAD in console.page("/", 502)
        console.page("/login")


async def test_pages_say_which_broker_is_missing() -> None:
    async with congreve.NameServer(host="127.0.0.1", port=0) as name_server:
        await asyncio.to_thread(look_without_brokers, name_server.address)
        header = RegisterBrokerRequestHeader(
            broker_name="dead",
            broker_addr=DEAD,
            cluster_name="c",
            ha_server_addr=DEAD,
            broker_id=0,
        )
        async with AdminClient(name_server.address) as admin:  # as long as its connection is open
            await admin.demand(
                name_server.address,
                RequestCode.REGISTER_BROKER,
                header.fields(),
                RegisterBrokerBody().encode(),
            )
            await asyncio.to_thread(look_with_a_dead_broker, name_server.address)


def test_a_broker_that_goes_down_is_named(node: congreve.Node) -> None:
    """It was open before: the pages stay, and say that it does not answer."""
    for console in serve_console(Options(namesrv=node.address)):
        console.page("/")
        gate = console.site.gate
        gate._open._at -= 100.0  # the answer is old

        async def refused() -> bool:
            raise congreve.CongreveError("refused")

        gate._open._read = refused
        assert 'href="/brokers/' in console.page("/")
