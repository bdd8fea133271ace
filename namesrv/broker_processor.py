"""Requests of brokers, and changes of their permissions (RocketMQ: DefaultRequestProcessor)."""

import asyncio
import logging
import zlib
from collections.abc import Awaitable

from congreve.base.table_limit import TableFullError
from congreve.namesrv.errors import RegistrationError
from congreve.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KvConfig
from congreve.namesrv.routes import BrokerIdentity, RouteTable
from congreve.remoting.errors import ConnectionLostError
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_headers import (
    AddWritePermOfBrokerResponseHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from congreve.remoting.messages.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.listeners import parse_addresses
from congreve.remoting.messages.register_body import read_registration
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)

TINY_REGISTRATION = 4 * 1024
"""Bytes of a registration that is taken at once; larger ones take turns with other requests."""
SMALL_REGISTRATION = 96 * 1024
"""Bytes of a registration that the event loop reads itself; a thread reads larger ones."""
TOPICS_A_TURN = 1_000
"""Registered topics that one turn of the event loop takes, so that other requests wait little."""


class BrokerProcessor:
    """Registers brokers in the route table, and changes their permission to accept messages.

    (RocketMQ: DefaultRequestProcessor.)
    """

    def __init__(self, routes: RouteTable, kv: KvConfig, pieces: Pieces) -> None:
        self._routes = routes
        self._kv = kv
        self._pieces = pieces
        self._reading = asyncio.Lock()

    def handlers(self) -> dict[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
        }

    def _register(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        header = RegisterBrokerRequestHeader.read(request)
        tiny = len(request.body) <= TINY_REGISTRATION and not header.compressed
        if tiny and header.unchanged:
            return self._unchanged(header, request, connection)
        if tiny and not self._reading.locked():
            return self._registered(header, request, connection, _read_body(header, request))
        return self._register_large(header, request, connection)

    def _unchanged(
        self, header: RegisterBrokerRequestHeader, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        body = _read_body(header, request)
        if body is not None:
            version = body.topic_config_serialize_wrapper.data_version
            if self._routes.wants_topics(_identity(header), version):
                answer = RegisterBrokerResponseHeader(topics_wanted=True)
                return request.reply(ResponseCode.SUCCESS, None, answer.fields())
        return self._registered(header, request, connection, body)

    async def _register_large(
        self, header: RegisterBrokerRequestHeader, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Take registrations one after the other, and their topics in parts: other requests are
        served in between, and memory is bounded."""
        async with self._reading:
            await asyncio.sleep(0)  # one in a turn of the event loop
            if len(request.body) <= SMALL_REGISTRATION and not header.compressed:
                body = _read_body(header, request)
            else:
                body = await asyncio.to_thread(_read_body, header, request)
            if connection.closed:
                raise ConnectionLostError(f"{connection}: broker {header.broker_addr} is gone")
            if body is None:
                return self._registered(header, request, connection, body)
            wrapper = body.topic_config_serialize_wrapper
            wanted = self._routes.wants_topics(_identity(header), wrapper.data_version)
            topics = list(wrapper.topic_config_table.values())
            wrapper.topic_config_table = _some(topics)
            answer = self._registered(header, request, connection, body)
            while topics:
                await asyncio.sleep(0)
                more = _some(topics)  # unneeded ones, too: freeing all at once would take long
                if wanted and not connection.closed:
                    await self._take_topics(header, list(more.values()))
            return answer

    async def _take_topics(
        self, header: RegisterBrokerRequestHeader, topics: list[TopicConfig]
    ) -> None:
        try:
            self._routes.take_topics(header.broker_name, topics)
        except (TableFullError, RegistrationError):
            # Otherwise the broker would count as registered with all its topics.
            await self._pieces.run(self._routes.unregister_steps(header.broker_addr))
            raise

    def _registered(
        self,
        header: RegisterBrokerRequestHeader,
        request: RemotingCommand,
        connection: Connection,
        body: RegisterBrokerBody | None,
    ) -> RemotingCommand:
        if body is None:
            logger.warning("registration of %s damaged on its way", header.broker_addr)
            return request.reply(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        wrapper = body.topic_config_serialize_wrapper
        master = self._routes.register(
            _identity(header), wrapper, body.filter_server_list, connection
        )
        answer = RegisterBrokerResponseHeader(
            ha_server_addr=None if master is None else master.ha_address,
            master_addr=None if master is None else master.address,
            topics_wanted=None if header.unchanged is None else False,
        )
        ordered = self._kv.namespace(ORDER_TOPIC_CONFIG)
        content = b"" if ordered is None else KVTable(table=ordered).encode()
        return request.reply(ResponseCode.SUCCESS, None, answer.fields(), content)

    async def _unregister(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = UnregisterBrokerRequestHeader.read(request)
        await self._pieces.run(self._routes.unregister_steps(header.broker_addr))
        return request.reply(ResponseCode.SUCCESS)

    def _query_data_version(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        address = QueryDataVersionRequestHeader.read(request).broker_addr
        changed = self._routes.is_changed(address, DataVersion.decode(request.body))
        if not changed:
            self._routes.touch(address)
        known = self._routes.data_version(address)
        fields = QueryDataVersionResponseHeader(changed=changed).fields()
        body = b"" if known is None else known.encode()
        return request.reply(ResponseCode.SUCCESS, None, fields, body)

    async def _wipe_write_perm(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        name = WipeWritePermOfBrokerRequestHeader.read(request).broker_name
        count = await self._pieces.run(self._routes.wipe_write_perm(name))
        answer = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return request.reply(ResponseCode.SUCCESS, None, answer.fields())

    async def _add_write_perm(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        name = WipeWritePermOfBrokerRequestHeader.read(request).broker_name
        count = await self._pieces.run(self._routes.add_write_perm(name))
        answer = AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return request.reply(ResponseCode.SUCCESS, None, answer.fields())


def _identity(header: RegisterBrokerRequestHeader) -> BrokerIdentity:
    return BrokerIdentity(
        cluster=header.cluster_name,
        name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        advertised=parse_addresses(header.advertised_listeners or ""),
    )


def _some(topics: list[TopicConfig]) -> dict[str, TopicConfig]:
    """Take the last TOPICS_A_TURN away from `topics`."""
    taken = topics[-TOPICS_A_TURN:]
    del topics[-TOPICS_A_TURN:]
    return {topic.topic_name: topic for topic in taken}


def _read_body(
    header: RegisterBrokerRequestHeader, request: RemotingCommand
) -> RegisterBrokerBody | None:
    """Read a registration; None when its checksum is wrong."""
    if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body) & 0x7FFFFFFF:
        return None
    return read_registration(request.body, request.version, compressed=header.compressed)
