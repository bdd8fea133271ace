"""A name server and a broker embedded in a program: ``congreve.serve`` and its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from congreve.broker.broker import Broker
from congreve.broker.broker_conf import keyword_texts
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import BrokerError, ConfigError
from congreve.broker.pair import pair_broker_name, pair_master, paired_slave
from congreve.broker.tls import server_settings
from congreve.engine.state.sizes import adopt_sizes, small_sizes
from congreve.name_server import name_server
from congreve.remoting.loop.loop_thread import Lifecycle
from congreve.remoting.transport.guard import most_connections
from congreve.remoting.transport.local_address import LOOPBACK
from congreve.table_archive import archive_of

if TYPE_CHECKING:
    from congreve.broker.setting_types import NodeSettings
    from congreve.client.consumer.listening import BatchListener, Listener
    from congreve.client.consumer.lite_pull import SyncLitePullConsumer
    from congreve.client.consumer.member import MemberOptions
    from congreve.client.consumer.push import PushConsumer, SyncPushConsumer
    from congreve.client.producer.producer import Producer, ProducerOptions
    from congreve.client.producer.sync_producer import SyncProducer
    from congreve.client.subscription import Sql

    Topics = Mapping[str, str | Sql]

ANY_ADDRESS = ("0.0.0.0", "::", "")


def serve(
    path: str | Path,
    *,
    namesrv_port: int = 0,
    namesrv_listeners: Mapping[str, tuple[str, int]] | None = None,
    **settings: Unpack[NodeSettings],
) -> Serving:
    """A name server and a broker in this process, for ``with`` or ``async with``::

        with congreve.serve("data") as node, node.producer("p") as producer:
            producer.send(congreve.Message(topic="orders", body=b"hello"))

    `path` is the folder for all files; it is created if missing. `settings` are keys of
    broker.conf, such as ``flushDiskType="ASYNC_FLUSH"``. Both servers listen on free ports of
    127.0.0.1 unless `namesrv_port`, listenPort and bindAddress say otherwise. SQL92 filters work,
    unless enablePropertyFilter says otherwise. A new store has small files, unless
    mappedFileSizeCommitLog, maxHashSlotNum and maxIndexNum say otherwise. The name server also
    listens at the addresses (host, port) of `namesrv_listeners`, and answers there with those that
    the broker advertises for a listener of that name. Raises ConfigError for an unknown or
    forbidden setting. Entering raises StoreError, BrokerError or RemotingError
    when a server cannot start; no server keeps running then.
    (RocketMQ: ``mqnamesrv`` and ``mqbroker``.)
    """
    texts = keyword_texts(settings)
    return Serving(_Servers(Path(path), namesrv_port, namesrv_listeners or {}, texts))


class Serving:
    """The result of serve(): ``with`` gives a Node, ``async with`` an AsyncNode; so does start(),
    for notebooks."""

    def __init__(self, servers: _Servers) -> None:
        self._servers = servers

    def __repr__(self) -> str:
        return f"<congreve.serve({str(self._servers.path)!r}): use `with`, or start()>"

    def start(self) -> Node:
        """Start both servers; stop() of the node stops them. Raises as entering does."""
        return self.__enter__()

    def _check_unused(self) -> None:
        if self._servers.has_started:
            path = str(self._servers.path)
            raise BrokerError(
                f"congreve.serve({path!r}) has started its node: call congreve.serve() again"
                " for another one, after stop() of this one"
            )

    def __enter__(self) -> Node:
        self._check_unused()
        servers = self._servers.__enter__()
        try:
            return Node(servers)
        except BaseException as error:
            servers.__exit__(type(error), error, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._servers.__exit__(kind, error, trace)

    async def __aenter__(self) -> AsyncNode:
        self._check_unused()
        return AsyncNode(await self._servers.__aenter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._servers.__aexit__(kind, error, trace)


class _Servers(Lifecycle):
    """The name server and the broker of one node."""

    def __init__(
        self,
        path: Path,
        namesrv_port: int,
        namesrv_listeners: Mapping[str, tuple[str, int]],
        texts: Mapping[str, str],
    ) -> None:
        if "namesrvAddr" in texts:
            raise ConfigError(
                f"namesrvAddr={texts['namesrvAddr']}: a node has its own name server; "
                "use congreve.Broker for a broker that registers elsewhere"
            )
        host = texts.get("bindAddress", LOOPBACK)
        # A broker that listens everywhere tells clients the address of this machine, the default.
        addresses = {} if host in ANY_ADDRESS else {"brokerIP1": host, "brokerIP2": host}
        connections = most_connections()
        usual = {
            "bindAddress": host,
            **addresses,
            "listenPort": "0",
            "enablePropertyFilter": "true",
            "storePathRootDir": str(path / "store"),
            "maxConnections": str(connections - connections // 8),
        }
        self.path = path
        self.is_running = self.has_started = False
        config = BrokerConfig().changed({**usual, **texts})
        adopt_sizes(config.store, texts, small_sizes(config.store.max_message_size))
        if config.acl_enable and not (config.acl_folder and config.broker_access_key):
            raise ConfigError(
                "aclEnable=true needs aclFolder, and brokerAccessKey, an administrator: the name"
                " server of this node has the same accounts"
            )
        self.name_server = name_server(
            host,
            namesrv_port,
            path / "namesrv",
            connections // 8,
            listeners=namesrv_listeners,
            tls=server_settings(config),
            acl_folder=Path(config.acl_folder) if config.acl_enable else None,
        )
        if config.pair_address and "brokerName" not in texts:
            config.broker_name = pair_broker_name(config.broker_ip1, config.listen_port)
        self.broker = Broker(config, archive=archive_of(config))
        self.paired_slave: Broker | None = None
        self._running = AsyncExitStack()

    async def start(self) -> None:
        config = self.broker.config
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.name_server)
            config.namesrv_addr = self.name_server.address
            if config.pair_address:
                config.namesrv_addr += f";{pair_master(config)[0]}:{self.name_server.port}"
            self.paired_slave = paired_slave(config)
            await stack.enter_async_context(self.broker)
            if self.paired_slave is not None:
                await stack.enter_async_context(self.paired_slave)
            self._running = stack.pop_all()
        self.is_running = self.has_started = True

    async def stop(self) -> None:
        self.is_running = False
        await self._running.aclose()


class _Node:
    """The attributes of both kinds of node."""

    def __init__(self, servers: _Servers) -> None:
        self._servers = servers
        self.path = servers.path
        """The folder with all files; congreve.open_store() reads it."""
        self.name_server = servers.name_server
        self.broker = servers.broker
        self.paired_slave = servers.paired_slave
        """The slave of the other machine's master; None without pairAddress."""

    @property
    def address(self) -> str:
        """``host:port`` of the name server, for RocketMQ clients."""
        return self.name_server.address

    def __repr__(self) -> str:
        name, files = type(self).__name__, f"files in {str(self.path)!r}"
        if not self._servers.is_running:
            return f"<{name}: stopped, {files}>"
        return f"<{name}: name server {self.address}, broker {self.broker.address}, {files}>"


class Node(_Node):
    """A running name server and broker, for programs without an event loop.

    Any thread may use its clients; close them before the node. `topics` maps each topic to its
    subscription: ``*``, tags joined with ``||``, or a congreve.client.Sql.
    """

    def stop(self) -> None:
        """Stop both servers; idempotent, and the end of a ``with`` does it."""
        self._servers.__exit__(None, None, None)

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> SyncProducer:
        """A producer for this node; `options` are congreve.client.Producer's."""
        from congreve.client import SyncProducer

        return SyncProducer(self.address, group=group, **options)

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        auto_commit: bool = True,
        **options: Unpack[MemberOptions],
    ) -> SyncLitePullConsumer:
        """A member of a group whose poll() returns messages (RocketMQ: DefaultLitePullConsumer).

        `auto_commit` and `options` are congreve.client.LitePullConsumer's.
        """
        from congreve.client import SyncLitePullConsumer

        return SyncLitePullConsumer(
            self.address, group=group, topics=topics, auto_commit=auto_commit, **options
        )

    def push_consumer(
        self,
        group: str,
        topics: Topics,
        listener: Listener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        **options: Unpack[MemberOptions],
    ) -> SyncPushConsumer:
        """A member of a group that calls `listener` or `batch_listener` (RocketMQ:
        DefaultMQPushConsumer).

        `options` are congreve.client.PushConsumer's.
        """
        from congreve.client import SyncPushConsumer

        return SyncPushConsumer(
            self.address,
            group=group,
            topics=topics,
            listener=listener,
            batch_listener=batch_listener,
            **options,
        )


class AsyncNode(_Node):
    """A running name server and broker on the caller's event loop; `topics` as for Node."""

    async def stop(self) -> None:
        """Stop both servers; idempotent, and the end of an ``async with`` does it."""
        await self._servers.__aexit__(None, None, None)

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer for this node; `options` are congreve.client.Producer's."""
        from congreve.client import Producer

        return Producer(self.address, group=group, **options)

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        **options: Unpack[MemberOptions],
    ) -> PushConsumer:
        """A member of a group: iterate over it with ``async for``, or pass a `listener`.

        `options` are congreve.client.PushConsumer's (RocketMQ: DefaultMQPushConsumer).
        """
        from congreve.client import PushConsumer

        return PushConsumer(
            self.address,
            group=group,
            topics=topics,
            listener=listener,
            batch_listener=batch_listener,
            **options,
        )
