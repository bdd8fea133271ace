"""The part that all clients share: connections, routes, heartbeats (RocketMQ: MQClientInstance)."""

import asyncio
import logging
import os
import ssl as tls
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import NoneType, TracebackType
from typing import Any, Self

from congreve.base.errors import CongreveError
from congreve.client.checks import check_seconds, check_topic, check_type
from congreve.client.errors import BrokerError, ClientStateError
from congreve.client.ids import client_id
from congreve.client.logs import Log
from congreve.client.transport.route import REFRESH_S, STALE_S, NameServers, RouteCache
from congreve.remoting.errors import RemotingError
from congreve.remoting.loop.background import BackgroundTask, stop_all
from congreve.remoting.messages.bodies import ConsumerData, HeartbeatData, ProducerData
from congreve.remoting.messages.codes import LanguageCode, RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import UnregisterClientRequestHeader
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.local_address import local_address

log = Log(__name__)
logger = logging.getLogger(__name__)

HEARTBEAT_S = 30.0
FIRST_HEARTBEAT_S = 1.0
UNREGISTER_TIMEOUT_S = 1.0


class ClientInstance:
    """Base class of producers, consumers and admin clients: ``async with`` starts and stops it
    (RocketMQ: MQClientInstance).

    `namesrv` is ``host:port;host:port``. All coroutines belong to the event loop that started the
    client. With `credentials` every request is signed, with `ssl` every connection is encrypted;
    `namespace` becomes a prefix of the names of topics and groups.

    Raises NoNameServerError when `namesrv` is empty, InvalidNameError when the namespace is
    invalid, InvalidSettingError when an address or another setting is.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        timeout_s: float = 3.0,
        credentials: Credentials | None = None,
        ssl: tls.SSLContext | None = None,
        namespace: str | None = None,
    ) -> None:
        check_type("namesrv", namesrv, str)
        check_seconds("timeout_s", timeout_s)
        check_type("credentials", credentials, Credentials, NoneType)
        check_type("ssl", ssl, tls.SSLContext, NoneType)
        check_type("namespace", namespace, str, NoneType)
        if namespace:
            check_topic(namespace)
        self.timeout_s = timeout_s
        self.address = local_address()
        self.client_id = client_id(self.address)
        self.namespace = namespace
        self._remoting = RemotingClient(
            timeout_s=timeout_s,
            handlers=self._handlers(),
            ssl=ssl,
            before_request=None if credentials is None else credentials.sign,
            on_close=self._connection_closed,
        )
        self.name_servers = NameServers(namesrv, self._remoting, timeout_s=timeout_s)
        self.routes = RouteCache(self.name_servers)
        self._tasks: list[BackgroundTask] = []
        self._pid = os.getpid()
        self._started = False
        self._ending: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        """Start the client; this contacts no name server or broker. Raises ClientStateError when
        it was started before."""
        if self._started:
            raise ClientStateError(f"client {self.client_id} can be started only once")
        self.check_process()
        self._started = True
        self._begin_task("the refreshing of routes", self._keep_routes)
        self._every(HEARTBEAT_S, self.heartbeat, first_s=FIRST_HEARTBEAT_S)

    async def stop(self) -> None:
        """Unregister from the brokers and close all connections; idempotent.

        When it is interrupted, its work continues, and the next stop() waits for that. In a child
        made by fork() nothing happens: the connections are the parent's.
        """
        if not self._started or os.getpid() != self._pid:
            return
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._stop_all())
        await asyncio.shield(self._ending)

    async def _stop_all(self) -> None:
        await stop_all(self._tasks)
        try:
            await self._leave()
            await self._unregister()
        finally:
            self._stopped = True
            await self._remoting.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def check_process(self) -> None:
        """Raises ClientStateError in a child made by fork(): both would read one connection."""
        if os.getpid() != self._pid:
            raise ClientStateError(
                f"client {self.client_id} belongs to process {self._pid}: after a fork() each"
                " process makes a client of its own"
            )

    def check_running(self) -> None:
        """Raises ClientStateError when the client is not running, or in a child made by fork()."""
        self.check_process()
        if not self._started or self._stopped:
            state = "stopped" if self._stopped else "not started: use `async with`"
            raise ClientStateError(f"client {self.client_id} is {state}")

    async def ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Return a broker's answer, whatever its code. Raises RemotingError when there is none."""
        request = RemotingCommand(
            code=code, language=LanguageCode.PYTHON, ext_fields=dict(fields or {}), body=body
        )
        return await self._remoting.invoke(address, request, timeout_s)

    async def demand(
        self, address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Return a broker's answer. Raises BrokerError when its code is not SUCCESS, RemotingError
        when there is no answer."""
        answer = await self.ask(address, code, fields, body)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    async def oneway(
        self, address: str, code: int, fields: Mapping[str, str], body: bytes = b""
    ) -> None:
        """Send a one-way request. Raises RemotingError when it cannot be written."""
        request = RemotingCommand(
            code=code, language=LanguageCode.PYTHON, ext_fields=dict(fields), body=body
        )
        await self._remoting.oneway(address, request)

    async def heartbeat(self) -> None:
        """Register at the brokers of all known routes. Raises nothing."""
        producers, consumers = self._producer_data(), self._consumer_data()
        if not producers and not consumers:
            return
        body = HeartbeatData(
            client_id=self.client_id, producer_data_set=producers, consumer_data_set=consumers
        ).encode()
        addresses = self.routes.addresses(masters_only=not consumers)
        await asyncio.gather(*(self._heartbeat_to(address, body) for address in addresses))

    async def _heartbeat_to(self, address: str, body: bytes) -> None:
        try:
            await self.demand(address, RequestCode.HEART_BEAT, body=body)
        except (BrokerError, RemotingError) as error:
            log.warning("heartbeat failed", broker=address, client=self.client_id, error=error)

    async def _unregister(self) -> None:
        addresses = self.routes.addresses(masters_only=False)
        headers = [
            UnregisterClientRequestHeader(client_id=self.client_id, producer_group=data.group_name)
            for data in self._producer_data()
        ] + [
            UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=data.group_name)
            for data in self._consumer_data()
        ]
        await asyncio.gather(
            *(self._unregister_at(a, header) for a in addresses for header in headers)
        )

    async def _unregister_at(self, address: str, header: UnregisterClientRequestHeader) -> None:
        code, fields = RequestCode.UNREGISTER_CLIENT, header.fields()
        try:
            await self.ask(address, code, fields, timeout_s=UNREGISTER_TIMEOUT_S)
        except RemotingError as error:
            log.info("unregistering failed", broker=address, client=self.client_id, error=error)

    def _connection_closed(self, connection: Connection) -> None:
        self.routes.note_stale()

    async def _keep_routes(self) -> None:
        """Refresh the routes every REFRESH_S seconds, and soon after a broker has failed."""
        while True:
            await self.routes.wait_stale(REFRESH_S)
            await self._refresh_routes()
            await asyncio.sleep(STALE_S)

    async def _refresh_routes(self) -> None:
        await self.routes.refresh()

    def _begin_task(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run work until the client stops, again after an error that it did not expect."""
        task = BackgroundTask(f"{self.client_id}: {name}", work, logger)
        self._tasks.append(task)
        task.start()

    def _every(
        self, seconds: float, work: Callable[[], Awaitable[None]], *, first_s: float | None = None
    ) -> None:
        """Repeat work until the client stops; failures are logged."""

        async def repeat() -> None:
            await asyncio.sleep(seconds if first_s is None else first_s)
            while True:
                try:
                    await work()
                except CongreveError as error:
                    log.warning("periodic work failed, will retry", work=work.__name__, error=error)
                await asyncio.sleep(seconds)

        self._begin_task(f"the periodic work {work.__name__}", repeat)

    async def _leave(self) -> None:
        """Hook for subclasses: called before the connections close."""

    def _handlers(self) -> Mapping[int, Handler]:
        """Hook for subclasses: handlers of requests from brokers."""
        return {}

    def _producer_data(self) -> list[ProducerData]:
        """Hook for subclasses: producer groups for the heartbeat."""
        return []

    def _consumer_data(self) -> list[ConsumerData]:
        """Hook for subclasses: consumer groups for the heartbeat."""
        return []
