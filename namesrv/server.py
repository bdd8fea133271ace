"""The name server: handlers over the route table (RocketMQ: NamesrvController)."""

import asyncio
import json
import logging
import time
import zlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from congreve.namesrv.config import NamesrvConfig, format_properties, parse_properties
from congreve.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KvConfig, KvStore
from congreve.namesrv.routes import BrokerIdentity, RouteTable
from congreve.remoting.bodies import DataVersion, KVTable, TopicList, TopicRouteData
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.headers import (
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from congreve.remoting.registerbody import read_registration
from congreve.remoting.server import RemotingServer

logger = logging.getLogger(__name__)

SCAN_S = 10.0
"""Seconds between two looks for brokers that fell silent; the first comes after FIRST_SCAN_S."""
FIRST_SCAN_S = 5.0

FIRST_VERSION_OF_STANDARD_ROUTES = 401
"""MQVersion ordinal of V4_9_4: from it on, routes are standard JSON."""


class NameServer:
    """Keeps routes in memory and answers for them: ``async with NameServer(port=0) as server``.

    Only key-value settings are saved, through `kv_store`. `clock` gives seconds for the expiry of
    silent brokers.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 9876,
        kv_store: KvStore | None = None,
        config: NamesrvConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or NamesrvConfig()
        self.routes = RouteTable(clock)
        self._kv = KvConfig(kv_store)
        self._server = RemotingServer(
            self._handlers(), host=host, port=port, on_close=self.routes.channel_closed
        )
        self._scan: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        """``host:port`` that it listens on."""
        return f"{self._server.host}:{self._server.port}"

    async def start(self) -> None:
        """Load the key-value settings and listen. Raises ConnectError, BodyError."""
        self._kv.load()
        await self._server.start()
        self._scan_in(FIRST_SCAN_S)

    async def stop(self) -> None:
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        await self._server.stop()

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

    def _scan_in(self, seconds: float) -> None:
        self._scan = asyncio.get_running_loop().call_later(seconds, self._drop_expired)

    def _drop_expired(self) -> None:
        for channel in self.routes.drop_expired():
            if isinstance(channel, Connection):
                channel.close()
        self._scan_in(SCAN_S)

    def _handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _listing(self.routes.topics),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _listing(self.routes.system_topics),
            RequestCode.GET_UNIT_TOPIC_LIST: _listing(self.routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _listing(self.routes.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _listing(
                self.routes.unit_sub_ununit_topics
            ),
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    # ---- brokers -------------------------------------------------------------------------------

    def _register(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = RegisterBrokerRequestHeader.read(request)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body) & 0x7FFFFFFF:
            logger.warning("registration of %s damaged on its way", header.broker_addr)
            return request.reply(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        body = read_registration(request.body, request.version, compressed=header.compressed)
        broker = BrokerIdentity(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr,
        )
        master = self.routes.register(
            broker, body.topic_config_serialize_wrapper, body.filter_server_list, connection
        )
        answer = RegisterBrokerResponseHeader()
        if master is not None:
            answer = RegisterBrokerResponseHeader(
                ha_server_addr=master.ha_address, master_addr=master.address
            )
        ordered = self._kv.namespace(ORDER_TOPIC_CONFIG)
        content = b"" if ordered is None else KVTable(table=ordered).encode()
        return request.reply(ResponseCode.SUCCESS, None, answer.fields(), content)

    def _unregister(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = UnregisterBrokerRequestHeader.read(request)
        self.routes.unregister(header.broker_addr)
        return request.reply(ResponseCode.SUCCESS)

    def _query_data_version(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        address = QueryDataVersionRequestHeader.read(request).broker_addr
        changed = self.routes.is_changed(address, DataVersion.decode(request.body))
        if not changed:
            self.routes.touch(address)
        known = self.routes.data_version(address)
        fields = QueryDataVersionResponseHeader(changed=changed).fields()
        body = b"" if known is None else known.encode()
        return request.reply(ResponseCode.SUCCESS, None, fields, body)

    def _cluster_info(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return request.reply(ResponseCode.SUCCESS, body=self.routes.cluster_info().encode())

    def _wipe_write_perm(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        name = WipeWritePermOfBrokerRequestHeader.read(request).broker_name
        count = self.routes.wipe_write_perm(name)
        answer = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return request.reply(ResponseCode.SUCCESS, None, answer.fields())

    def _add_write_perm(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        name = WipeWritePermOfBrokerRequestHeader.read(request).broker_name
        count = self.routes.add_write_perm(name)
        answer = AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return request.reply(ResponseCode.SUCCESS, None, answer.fields())

    # ---- topics --------------------------------------------------------------------------------

    def _route(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetRouteInfoRequestHeader.read(request)
        route = self.routes.route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self.config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
        standard = request.version >= FIRST_VERSION_OF_STANDARD_ROUTES
        if standard or header.accept_standard_json_only:
            return request.reply(ResponseCode.SUCCESS, body=_standard_json(route))
        return request.reply(ResponseCode.SUCCESS, body=route.encode())

    def _delete_topic(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = DeleteTopicFromNamesrvRequestHeader.read(request)
        self.routes.delete_topic(header.topic, header.cluster_name or None)
        return request.reply(ResponseCode.SUCCESS)

    def _topics_of_cluster(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        cluster = GetTopicsByClusterRequestHeader.read(request).cluster
        topics = self.routes.topics_of_cluster(cluster)
        return request.reply(ResponseCode.SUCCESS, body=topics.encode())

    # ---- settings ------------------------------------------------------------------------------

    async def _put_kv(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = PutKVConfigRequestHeader.read(request)
        await self._kv.put(header.namespace, header.key, header.value)
        return request.reply(ResponseCode.SUCCESS)

    async def _delete_kv(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetKVConfigRequestHeader.read(request)
        await self._kv.delete(header.namespace, header.key)
        return request.reply(ResponseCode.SUCCESS)

    def _get_kv(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetKVConfigRequestHeader.read(request)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        fields = GetKVConfigResponseHeader(value=value).fields()
        return request.reply(ResponseCode.SUCCESS, None, fields)

    def _kv_list(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        namespace = GetKVListByNamespaceRequestHeader.read(request).namespace
        settings = self._kv.namespace(namespace)
        if settings is None:
            remark = f"No config item, Namespace: {namespace}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.reply(ResponseCode.SUCCESS, body=KVTable(table=settings).encode())

    def _update_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        text = request.body.decode("utf-8", "replace")
        unknown = self.config.update(parse_properties(text))
        if unknown:
            logger.warning("name server settings %s are not known, ignored", ", ".join(unknown))
        return request.reply(ResponseCode.SUCCESS)

    def _get_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        settings = msgspec.to_builtins(self.config)
        settings |= {"listenPort": self.port, "bindAddress": self._server.host}
        return request.reply(ResponseCode.SUCCESS, body=format_properties(settings).encode())


def _listing(topics: Callable[[], TopicList]) -> Handler:
    def handle(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return request.reply(ResponseCode.SUCCESS, body=topics().encode())

    return handle


def _standard_json(route: TopicRouteData) -> bytes:
    """Keys quoted and sorted, all signs beyond ASCII escaped, nothing that is null."""
    tree = msgspec.to_builtins(route, str_keys=True)
    present = {key: value for key, value in tree.items() if value is not None}
    return json.dumps(present, separators=(",", ":"), sort_keys=True).encode()
