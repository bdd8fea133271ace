"""Registers the broker at every name server (RocketMQ: BrokerOuterAPI, BrokerController)."""

import asyncio
import itertools
import logging
import ssl as tls
import zlib
from collections.abc import Callable, Generator
from functools import partial

import msgspec

from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from congreve.remoting.errors import RemotingError, RequestTimeoutError
from congreve.remoting.loop.background import BackgroundTask, stop_all
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_headers import (
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)
from congreve.remoting.messages.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.listeners import format_addresses
from congreve.remoting.messages.register_body import (
    PART_BYTES,
    deflated,
    registration_steps,
    topic_size,
)
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

PERIOD_MIN_S, PERIOD_MAX_S = 10.0, 60.0
RETRY_S = 5.0
"""Seconds until the broker registers again at a name server that failed."""
UNREGISTER_TIMEOUT_S = 3.0
HEARD_TIMEOUT_S = 3.0
"""How long an answer waits for name servers, in seconds; mqadmin waits 5 for it."""


class _NameServer:
    """The changes that one name server has not received yet; `changed` None stands for all
    topics. `knows_unchanged`: it takes registrations with the header field `unchanged`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.changed: set[str] | None = None
        self.changes = 0
        self.heard = 0
        self.wanted = asyncio.Event()
        self.told = asyncio.Event()
        self.connection: Connection | None = None
        self.knows_unchanged = False
        self.parts = itertools.count(1)
        self.order_topics: frozenset[str] | None = None
        self.failing = False

    def note_registered(self, changes: int) -> None:
        """The name server has received this many changes, or the registration failed."""
        self.heard = changes
        self.told.set()
        self.told = asyncio.Event()

    async def registered(self) -> None:
        """Return when the name server has received all changes so far, or when it fails."""
        changes = self.changes
        while self.heard < changes and not self.failing:
            await self.told.wait()


class NameServerRegistration:
    """Registers at once when a topic changes, and every `registerNameServerPeriod`.

    Each name server has its own task, so that a slow one delays no other. A change sends only
    the changed topics; over a new connection, and after a failure, it sends all of them, because a
    name server that has just started has none. Many topics are sent in several registrations, as
    RocketMQ 5 does (enableSplitRegistration). Without a change, a name server of ours gets the data
    version alone; one of RocketMQ gets all topics, or with `forceRegister` off the question
    whether it has this version. No error reaches the broker. `sign` gets each request first, `ssl`
    encrypts the connections. `ha_address` returns where slaves connect; `note_master` gets
    the master's HA address and its address, which a name server answers to a slave.
    (RocketMQ: BrokerController.registerBrokerAll.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        pieces: Pieces,
        sign: Callable[[RemotingCommand], None] | None = None,
        ssl: tls.SSLContext | None = None,
        *,
        ha_address: Callable[[], str] = str,
        note_master: Callable[[str, str], None] | None = None,
    ) -> None:
        self._config = config
        self._pieces = pieces
        self._ha_address = ha_address
        self._note_master = note_master
        self._sign = sign
        self._ssl = ssl
        self._topics = topics
        self._client: RemotingClient | None = None
        self._servers: list[_NameServer] = []
        self._tasks: list[BackgroundTask] = []
        topics.listen(self._topic_changed)

    async def start(self) -> None:
        """Register at all name servers; return when each of them answered or failed."""
        timeout_s = self._config.register_broker_timeout_mills / 1000
        self._client = RemotingClient(
            timeout_s=timeout_s,
            connect_timeout_s=timeout_s,
            on_close=self._connection_closed,
            before_request=self._sign,
            ssl=self._ssl,
        )
        self._servers = [_NameServer(address) for address in self._config.name_servers]
        delays = await asyncio.gather(*(self._try_register(server) for server in self._servers))
        self._tasks = [
            BackgroundTask(
                f"the registration at name server {server.address}",
                partial(self._keep_telling, server, delay),
                logger,
            )
            for server, delay in zip(self._servers, delays, strict=True)
        ]
        for task in self._tasks:
            task.start()

    async def stop(self) -> None:
        """Unregister at every name server that can be reached."""
        await stop_all(self._tasks)
        for server in self._servers:
            server.note_registered(server.changes)
        servers, self._servers, self._tasks = self._servers, [], []
        await asyncio.gather(*(self._unregister(server) for server in servers))
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def registered_everywhere(self, limit_s: float = HEARD_TIMEOUT_S) -> None:
        """Return when name servers have all changes so far, or after `limit_s` seconds.

        A client that creates a topic then finds its route (RocketMQ: registerIncrementBrokerData).
        """
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*(server.registered() for server in self._servers))
        except TimeoutError:
            logger.warning("a name server has not answered for %.0f s", limit_s)

    async def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic at the first name server that answers, None if it has none.

        Raises RemotingError if none answers.
        """
        fields = GetRouteInfoRequestHeader(topic=topic).fields()
        fault = RemotingError("this broker has no name servers")
        for server in self._servers:
            try:
                answer = await self._invoke(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
            except RemotingError as error:
                fault = error
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if answer.code == ResponseCode.SUCCESS:
                return TopicRouteData.decode(answer.body)
            fault = RemotingError(f"code {answer.code}: {answer.remark}")
        raise fault

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        for server in self._servers:
            server.changes += 1
            if server.changed is not None:
                server.changed.add(topic)
            server.wanted.set()

    def _connection_closed(self, connection: Connection) -> None:
        for server in self._servers:
            if server.connection is connection:
                server.wanted.set()

    async def _keep_telling(self, server: _NameServer, delay: float) -> None:
        while True:
            try:
                async with asyncio.timeout(delay):
                    await server.wanted.wait()
            except TimeoutError:
                pass
            server.wanted.clear()
            changes = server.changes
            delay = await self._try_register(server)
            server.note_registered(changes)

    async def _try_register(self, server: _NameServer) -> float:
        """Register at one name server; returns the seconds until the next registration."""
        try:
            await self._register(server)
        except RemotingError as error:
            if not server.failing:
                logger.warning("not registered at name server %s: %s", server.address, error)
            server.failing = True
            server.changed = None
            return RETRY_S
        if server.failing:
            logger.warning("registered at name server %s again", server.address)
            server.failing = False
        period = self._config.register_name_server_period / 1000
        return min(max(period, PERIOD_MIN_S), PERIOD_MAX_S)

    async def _register(self, server: _NameServer) -> None:
        assert self._client is not None
        connection = await self._client.connection(server.address)
        if connection is not server.connection:
            server.connection, server.knows_unchanged = connection, False
            server.changed = None
        if server.changed == set():
            if await self._is_up_to_date(server):
                return
            server.changed = None
        # In one step: a name server ignores topics that come with a version that it knows.
        version = self._topics.data_version
        changed, server.changed = server.changed, set()
        names = self._all_topics() if changed is None else list(changed)
        parts = _Parts(names, self._topics.announced)
        while not parts.ended:
            part = await self._pieces.run(parts.next_steps())
            # A part has a version that no other has: this broker lacks topics there.
            of_part = msgspec.structs.replace(version, timestamp=next(server.parts))
            await self._send(server, version if parts.ended else of_part, part)

    def _all_topics(self) -> list[str]:
        """The names of all topics, the template of new ones last: with it a producer creates a
        topic that it does not find."""
        names = list(self._topics.table)
        if AUTO_CREATE_TOPIC_KEY_TOPIC in self._topics.table:
            names.remove(AUTO_CREATE_TOPIC_KEY_TOPIC)
            names.append(AUTO_CREATE_TOPIC_KEY_TOPIC)
        return names

    async def _send(
        self,
        server: _NameServer,
        version: DataVersion,
        topics: dict[str, TopicConfig],
        *,
        unchanged: bool = False,
    ) -> bool:
        """Register these topics; returns whether the name server wants the topics that it knew."""
        config = self._config
        wrapper = TopicConfigSerializeWrapper(data_version=version, topic_config_table=topics)
        compressed = config.compressed_register and not unchanged
        body = await self._pieces.run(
            registration_steps(
                RegisterBrokerBody(topic_config_serialize_wrapper=wrapper), compressed=compressed
            )
        )
        if compressed:
            body = await asyncio.to_thread(deflated, body)
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=config.address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self._ha_address(),
            broker_id=config.broker_id,
            compressed=compressed,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            advertised_listeners=format_addresses(config.advertised) or None,
            unchanged=unchanged,
        )
        reply = await self._ask(server, RequestCode.REGISTER_BROKER, header.fields(), body)
        answer = RegisterBrokerResponseHeader.read(reply)
        server.knows_unchanged = answer.topics_wanted is not None
        if answer.topics_wanted:
            return True
        if self._note_master is not None:
            self._note_master(answer.ha_server_addr or "", answer.master_addr or "")
        if reply.body:
            server.order_topics = frozenset(KVTable.decode(reply.body).table)
            await self._take_order_topics()
        return False

    async def _is_up_to_date(self, server: _NameServer) -> bool:
        """Whether a name server has all topics; one of RocketMQ is asked without forceRegister."""
        version = self._topics.data_version
        if server.knows_unchanged:
            return not await self._send(server, version, {}, unchanged=True)
        if self._config.force_register:
            return False
        answer = await self._ask(
            server, RequestCode.QUERY_DATA_VERSION, self._identity(), version.encode()
        )
        return not QueryDataVersionResponseHeader.read(answer).changed

    async def _unregister(self, server: _NameServer) -> None:
        try:
            async with asyncio.timeout(UNREGISTER_TIMEOUT_S):
                await self._invoke(server, RequestCode.UNREGISTER_BROKER, self._identity())
        except (RemotingError, TimeoutError) as error:
            reason = str(error) or "timeout"
            logger.warning("not unregistered at name server %s: %s", server.address, reason)

    def _identity(self) -> dict[str, str]:
        """The header that QUERY_DATA_VERSION and UNREGISTER_BROKER share."""
        return QueryDataVersionRequestHeader(
            broker_name=self._config.broker_name,
            broker_addr=self._config.address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._config.broker_id,
        ).fields()

    async def _ask(
        self, server: _NameServer, code: int, fields: dict[str, str], body: bytes
    ) -> RemotingCommand:
        """Ask over the connection of this registration: a name server that has started meanwhile
        must not take its end for all of it."""
        assert server.connection is not None
        request = RemotingCommand(code=code, ext_fields=fields, body=body)
        timeout_s = self._config.register_broker_timeout_mills / 1000
        try:
            answer = await server.connection.invoke(request, timeout_s)
        except RequestTimeoutError:
            server.connection.leave_silent()
            raise
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"code {answer.code}: {answer.remark}")
        return answer

    async def _invoke(
        self, server: _NameServer, code: int, fields: dict[str, str]
    ) -> RemotingCommand:
        assert self._client is not None
        request = RemotingCommand(code=code, ext_fields=fields)
        return await self._client.invoke(server.address, request)

    async def _take_order_topics(self) -> None:
        """Name servers may disagree; the first one in the configured list that answered wins."""
        known = (server.order_topics for server in self._servers)
        order_topics = next((topics for topics in known if topics is not None), None)
        if order_topics is not None:
            await self._pieces.run(self._topics.order_steps(order_topics))


class _Parts:
    """Topics by name, in parts that registrations can have; `find` returns None without one.

    `ended`: there is no further part. There is always one, which may be empty.
    """

    def __init__(self, names: list[str], find: Callable[[str], TopicConfig | None]) -> None:
        self._names = iter(names)
        self._find = find
        self._first: TopicConfig | None = None  # of the next part
        self.ended = False

    def next_steps(self) -> Generator[None, None, dict[str, TopicConfig]]:
        """The next part, in steps."""
        first, self._first = self._first, None
        part = {} if first is None else {first.topic_name: first}
        size = 0 if first is None else topic_size(first)
        for name in self._names:
            topic = self._find(name)
            if topic is not None:
                size += topic_size(topic)
                if part and size > PART_BYTES:
                    self._first = topic
                    return part
                part[name] = topic
            yield
        self.ended = True
        return part
