"""The name server: handlers over the route table (RocketMQ: NamesrvController)."""

import asyncio
import logging
import time
import zlib
from collections.abc import Awaitable, Callable, Coroutine

from congreve import settings
from congreve.namesrv.config import (
    MAX_UPDATE,
    NamesrvConfig,
    format_properties,
    parse_properties,
)
from congreve.namesrv.errors import ConfigError, RegistrationError
from congreve.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KvConfig, KvStore
from congreve.namesrv.routes import BrokerIdentity, RouteTable, Steps
from congreve.remoting.errors import ConnectionLostError
from congreve.remoting.messages.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicList,
)
from congreve.remoting.messages.body import Body
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
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
from congreve.remoting.messages.register_body import read_registration
from congreve.remoting.transport.connection import Connection, Handler
from congreve.remoting.transport.guard import ConnectionGuard, SharedLimits
from congreve.remoting.transport.loop_thread import Lifecycle
from congreve.remoting.transport.pieces import Pieces
from congreve.remoting.transport.server import RemotingServer
from congreve.table_limit import TableFullError

logger = logging.getLogger(__name__)

SCAN_S = 10.0
"""Seconds between two scans for silent brokers; the first comes after FIRST_SCAN_S."""
FIRST_SCAN_S = 5.0

SMALL_REGISTRATION = 32 * 1024
"""Bytes of a registration that the event loop reads itself; a thread reads larger ones."""
TOPICS_A_TURN = 1_000
"""Registered topics that are taken in one turn: about half a millisecond."""


class NameServer(Lifecycle):
    """Serves routes from memory (NamesrvController): ``async with NameServer(port=0) as server``.

    ``with`` runs it on a loop and thread of its own. Port 0 takes any free port. Entering raises
    RemotingError where it cannot listen. RocketMQ's counterpart is NamesrvController.
    Key-value settings are saved through `kv_store`, changes of `config` through `config_store`.
    `limits` are those of all connections together. `clock` returns seconds for the expiry of silent
    brokers.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 9876,
        kv_store: KvStore | None = None,
        config: NamesrvConfig | None = None,
        config_store: KvStore | None = None,
        limits: SharedLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or NamesrvConfig()
        self.routes = RouteTable(clock, self.config)
        self._kv = KvConfig(kv_store, self.config)
        self._pieces = Pieces()
        self._config_store = config_store
        self._config_turn = asyncio.Lock()
        self._server = RemotingServer(
            self._handlers(),
            host=host,
            port=port,
            guard=ConnectionGuard(limits),
            on_close=self._connection_closed,
        )
        self._reading = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._scan: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    @property
    def address(self) -> str:
        """The ``host:port`` that it listens on."""
        return f"{self._server.host}:{self._server.port}"

    async def start(self) -> None:
        """Load the key-value settings and listen. Raises ConnectError, BodyError."""
        self._kv.load()
        self._load_config()
        await self._server.start()
        self._scan_in(FIRST_SCAN_S)

    async def stop(self) -> None:
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        await self._server.stop()

    def _scan_in(self, seconds: float) -> None:
        self._scan = asyncio.get_running_loop().call_later(seconds, self._drop_expired)

    def _drop_expired(self) -> None:
        self._begin(self._close_silent())
        self._scan_in(SCAN_S)

    async def _close_silent(self) -> None:
        for channel in await self._pieces.run(self.routes.expiry_steps()):
            if isinstance(channel, Connection):
                channel.close()

    def _connection_closed(self, connection: Connection) -> None:
        self._begin(self._pieces.run(self.routes.closing_steps(connection)))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._listing(self.routes.topics),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._listing(self.routes.system_topics),
            RequestCode.GET_UNIT_TOPIC_LIST: self._choosing(self.routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._choosing(self.routes.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._choosing(
                self.routes.unit_sub_ununit_topics
            ),
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    # ---- brokers -------------------------------------------------------------------------------

    def _register(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        header = RegisterBrokerRequestHeader.read(request)
        small = len(request.body) <= SMALL_REGISTRATION and not header.compressed
        if small and not self._reading.locked():
            return self._registered(header, request, connection, _read_body(header, request))
        return self._register_large(header, request, connection)

    async def _register_large(
        self, header: RegisterBrokerRequestHeader, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Take large registrations one at a time, to bound memory, and their topics in parts."""
        async with self._reading:
            body = await asyncio.to_thread(_read_body, header, request)
            if connection.closed:
                raise ConnectionLostError(f"{connection}: broker {header.broker_addr} is gone")
            if body is None:
                return self._registered(header, request, connection, body)
            wrapper = body.topic_config_serialize_wrapper
            wanted = self.routes.wants_topics(_identity(header), wrapper.data_version)
            topics = list(wrapper.topic_config_table.values())
            wrapper.topic_config_table = _some(topics)
            answer = self._registered(header, request, connection, body)
            while topics:
                await asyncio.sleep(0)
                more = _some(topics)  # not wanted ones, too: all freed at once would take long
                if wanted and not connection.closed:
                    await self._take_topics(header, list(more.values()))
            return answer

    async def _take_topics(
        self, header: RegisterBrokerRequestHeader, topics: list[TopicConfig]
    ) -> None:
        try:
            self.routes.take_topics(header.broker_name, topics)
        except (TableFullError, RegistrationError):
            # Otherwise the broker would count as registered with all its topics.
            await self._pieces.run(self.routes.unregister_steps(header.broker_addr))
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
        master = self.routes.register(
            _identity(header), wrapper, body.filter_server_list, connection
        )
        answer = RegisterBrokerResponseHeader()
        if master is not None:
            answer = RegisterBrokerResponseHeader(
                ha_server_addr=master.ha_address, master_addr=master.address
            )
        ordered = self._kv.namespace(ORDER_TOPIC_CONFIG)
        content = b"" if ordered is None else KVTable(table=ordered).encode()
        return request.reply(ResponseCode.SUCCESS, None, answer.fields(), content)

    async def _unregister(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = UnregisterBrokerRequestHeader.read(request)
        await self._pieces.run(self.routes.unregister_steps(header.broker_addr))
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

    async def _cluster_info(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        return await self._answer(request, self.routes.cluster_info())

    async def _wipe_write_perm(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        name = WipeWritePermOfBrokerRequestHeader.read(request).broker_name
        count = await self._pieces.run(self.routes.wipe_write_perm(name))
        answer = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return request.reply(ResponseCode.SUCCESS, None, answer.fields())

    async def _add_write_perm(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        name = WipeWritePermOfBrokerRequestHeader.read(request).broker_name
        count = await self._pieces.run(self.routes.add_write_perm(name))
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
        body = route.encode_for(request.version, standard_only=header.accept_standard_json_only)
        return request.reply(ResponseCode.SUCCESS, body=body)

    def _delete_topic(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = DeleteTopicFromNamesrvRequestHeader.read(request)
        self.routes.delete_topic(header.topic, header.cluster_name or None)
        return request.reply(ResponseCode.SUCCESS)

    async def _topics_of_cluster(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        cluster = GetTopicsByClusterRequestHeader.read(request).cluster
        return await self._chosen(request, self.routes.topics_of_cluster(cluster))

    def _listing(self, topics: Callable[[], TopicList]) -> Handler:
        async def handle(request: RemotingCommand, connection: Connection) -> RemotingCommand:
            return await self._answer(request, topics())

        return handle

    def _choosing(self, topics: Callable[[], Steps[TopicList]]) -> Handler:
        async def handle(request: RemotingCommand, connection: Connection) -> RemotingCommand:
            return await self._chosen(request, topics())

        return handle

    async def _chosen(self, request: RemotingCommand, topics: Steps[TopicList]) -> RemotingCommand:
        return await self._answer(request, await self._pieces.run(topics))

    async def _answer(self, request: RemotingCommand, content: Body) -> RemotingCommand:
        """Answer with this body, which is encoded in steps."""
        body = await self._pieces.run(content.encode_steps())
        return request.reply(ResponseCode.SUCCESS, body=body)

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

    async def _kv_list(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        namespace = GetKVListByNamespaceRequestHeader.read(request).namespace
        settings = self._kv.namespace(namespace)
        if settings is None:
            remark = f"No config item, Namespace: {namespace}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        return await self._answer(request, KVTable(table=settings))

    def _load_config(self) -> None:
        if self._config_store is None:
            return
        config = self._config_store.load(lambda text: self.config.changed(parse_properties(text)))
        if config is not None:
            self.config.take(config)

    async def _update_config(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        if len(request.body) > MAX_UPDATE:
            raise ConfigError(f"{len(request.body)} bytes of settings: at most {MAX_UPDATE} fit")
        changes = parse_properties(request.body.decode("utf-8", "replace"))
        async with self._config_turn:
            config = self.config.changed(changes)
            if self._config_store is not None:
                texts = settings.as_texts(config)
                await asyncio.to_thread(
                    self._config_store.replace_checked,
                    format_properties(texts),
                    lambda again: parse_properties(again) == texts,
                )
            self.config.take(config)
        return request.reply(ResponseCode.SUCCESS)

    def _get_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        texts = settings.as_texts(self.config)
        texts |= {"listenPort": str(self.port), "bindAddress": self._server.host}
        return request.reply(ResponseCode.SUCCESS, body=format_properties(texts).encode())


def _identity(header: RegisterBrokerRequestHeader) -> BrokerIdentity:
    return BrokerIdentity(
        cluster=header.cluster_name,
        name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
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
