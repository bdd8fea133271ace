"""Which broker serves which topic: state without a network (RocketMQ: RouteInfoManager)."""

import logging
from collections.abc import Callable, Hashable, Mapping
from enum import IntFlag

import msgspec

from congreve.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
)

logger = logging.getLogger(__name__)

EXPIRY_S = 120.0
"""Seconds without a registration after which a broker is forgotten."""

MASTER_ID = 0


class Perm(IntFlag):
    """What a topic's queues may be used for (RocketMQ: PermName)."""

    WRITE = 2
    READ = 4


class TopicSysFlag(IntFlag):
    """Bits of a topic's topicSysFlag."""

    UNIT = 1
    UNIT_SUB = 2


class BrokerIdentity(msgspec.Struct, frozen=True):
    """Who registers. A master and its slaves share `name`; `broker_id` 0 is the master."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""


class Master(msgspec.Struct, frozen=True):
    """What a slave is told about its master."""

    address: str
    ha_address: str


class _LiveBroker(msgspec.Struct):
    """The last registration of an address; `channel` is the connection that it came over."""

    last_seen: float
    data_version: DataVersion
    ha_address: str
    filter_servers: list[str]
    channel: Hashable


class RouteTable:
    """All that brokers registered. `clock` gives seconds that never run backwards."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues
        self._brokers: dict[str, BrokerData] = {}  # by broker name
        self._live: dict[str, _LiveBroker] = {}  # by address

    # ---- brokers -------------------------------------------------------------------------------

    def register(
        self,
        broker: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        filter_servers: list[str],
        channel: Hashable,
    ) -> Master | None:
        """Take a registration; it adds and changes topics, and never removes one.

        Returns the master that a slave belongs to, None for a master or where there is none.
        """
        data = self._brokers.get(broker.name)
        if data is None or data.cluster != broker.cluster:
            known = {} if data is None else data.broker_addrs
            data = BrokerData(cluster=broker.cluster, broker_name=broker.name, broker_addrs=known)
            self._brokers[broker.name] = data
        # A slave that became the master comes under another id with its old address.
        for stale in [i for i, a in data.broker_addrs.items() if a == broker.address]:
            if stale != broker.broker_id:
                del data.broker_addrs[stale]
        is_new = broker.broker_id not in data.broker_addrs
        data.broker_addrs[broker.broker_id] = broker.address
        changed = is_new or self.is_changed(broker.address, topics.data_version)
        if broker.broker_id == MASTER_ID and changed:
            for config in topics.topic_config_table.values():
                self._take_topic(broker.name, config)
        if broker.address not in self._live:
            logger.info("broker %s registered: %s", broker.name, broker.address)
        self._live[broker.address] = _LiveBroker(
            last_seen=self._clock(),
            data_version=topics.data_version,
            ha_address=broker.ha_address,
            filter_servers=filter_servers,
            channel=channel,
        )
        return None if broker.broker_id == MASTER_ID else self._master(data)

    def unregister(self, address: str) -> None:
        """Forget a broker that goes in order; another that took its id in the meantime stays."""
        self._forget(address)

    def channel_closed(self, channel: Hashable) -> None:
        """Forget who registered last over this connection."""
        for address in [a for a, live in self._live.items() if live.channel is channel]:
            logger.warning("connection of broker %s closed: its routes are removed", address)
            self._forget(address)

    def drop_expired(self) -> list[Hashable]:
        """Forget brokers that were silent too long; returns their connections."""
        limit = self._clock() - EXPIRY_S
        expired = [(a, live.channel) for a, live in self._live.items() if live.last_seen < limit]
        for address, _ in expired:
            logger.warning("broker %s silent for %g s: its routes are removed", address, EXPIRY_S)
            self._forget(address)
        return [channel for _, channel in expired]

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Whether a broker at `version` knows other topics than were registered last."""
        return self.data_version(address) != version

    def data_version(self, address: str) -> DataVersion | None:
        live = self._live.get(address)
        return None if live is None else live.data_version

    def touch(self, address: str) -> None:
        """The broker is alive, and has nothing new."""
        live = self._live.get(address)
        if live is not None:
            live.last_seen = self._clock()

    def _master(self, data: BrokerData) -> Master | None:
        address = data.broker_addrs.get(MASTER_ID)
        live = None if address is None else self._live.get(address)
        if address is None or live is None:
            return None
        return Master(address, live.ha_address)

    def _forget(self, address: str) -> None:
        self._live.pop(address, None)
        for name, data in list(self._brokers.items()):
            for broker_id in [i for i, a in data.broker_addrs.items() if a == address]:
                del data.broker_addrs[broker_id]
            if not data.broker_addrs:
                del self._brokers[name]
                self._remove_queues(list(self._queues), {name})

    # ---- topics --------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        """Queues and brokers of a topic, None where there are none."""
        queues = self._queues.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        addresses = [address for data in brokers for address in data.broker_addrs.values()]
        filter_servers = {a: self._live[a].filter_servers for a in addresses if a in self._live}
        return TopicRouteData(
            queue_datas=list(queues.values()),
            broker_datas=brokers,
            filter_server_table={a: servers for a, servers in filter_servers.items() if servers},
        )

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, or only those of its queues that a cluster's brokers have."""
        queues = self._queues.get(topic, {})
        self._remove_queues([topic], set(queues) if cluster is None else self._names(cluster))

    def change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Give all queues of a broker other rights, until it registers changes; their number."""
        count = 0
        for queues in self._queues.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queues[broker_name] = msgspec.structs.replace(queue, perm=change(queue.perm))
                count += 1
        return count

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take the right to write from all queues of a broker; their number."""
        return self.change_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Let all queues of a broker be read and written, whatever they were; their number."""
        return self.change_perm(broker_name, lambda _: int(Perm.READ | Perm.WRITE))

    def _take_topic(self, broker_name: str, config: TopicConfig) -> None:
        self._queues.setdefault(config.topic_name, {})[broker_name] = QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )

    def _remove_queues(self, topics: list[str], broker_names: set[str]) -> None:
        for topic in topics:
            queues = self._queues.get(topic, {})
            for name in broker_names & queues.keys():
                del queues[name]
            if not queues:
                self._queues.pop(topic, None)

    # ---- lists ---------------------------------------------------------------------------------

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table=dict(self._brokers),
            cluster_addr_table={name: sorted(self._names(name)) for name in self._clusters()},
        )

    def topics(self) -> TopicList:
        return TopicList(topic_list=list(self._queues))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        names = self._names(cluster)
        return TopicList(
            topic_list=[t for t, queues in self._queues.items() if names & set(queues)]
        )

    def system_topics(self) -> TopicList:
        """Names of clusters and brokers, which are topics too, and the address of some broker."""
        names = [name for cluster in self._clusters() for name in (cluster, *self._names(cluster))]
        addresses = (a for data in self._brokers.values() for a in data.broker_addrs.values())
        return TopicList(topic_list=names, broker_addr=next(addresses, None))

    def unit_topics(self) -> TopicList:
        return self._topics_where(lambda flag: bool(flag & TopicSysFlag.UNIT))

    def unit_sub_topics(self) -> TopicList:
        return self._topics_where(lambda flag: bool(flag & TopicSysFlag.UNIT_SUB))

    def unit_sub_ununit_topics(self) -> TopicList:
        both = TopicSysFlag.UNIT | TopicSysFlag.UNIT_SUB
        return self._topics_where(lambda flag: flag & both == TopicSysFlag.UNIT_SUB)

    def _topics_where(self, wanted: Callable[[int], bool]) -> TopicList:
        def first_flag(queues: Mapping[str, QueueData]) -> int:
            return next(iter(queues.values())).topic_sys_flag

        return TopicList(topic_list=[t for t, qs in self._queues.items() if wanted(first_flag(qs))])

    def _clusters(self) -> list[str]:
        return list(dict.fromkeys(data.cluster for data in self._brokers.values()))

    def _names(self, cluster: str) -> set[str]:
        return {name for name, data in self._brokers.items() if data.cluster == cluster}
