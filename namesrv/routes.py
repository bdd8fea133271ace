"""The route table: which broker serves which topic (RocketMQ: RouteInfoManager)."""

import itertools
import logging
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Set
from enum import IntFlag
from typing import TypeVar

import msgspec

from congreve.base.limited_log import LimitedLog
from congreve.base.table_limit import TableLimit
from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.errors import RegistrationError
from congreve.namesrv.topics import Placement, TopicTable
from congreve.remoting.messages.admin_bodies import TopicList
from congreve.remoting.messages.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work over all topics, which the event loop runs in steps."""

logger = logging.getLogger(__name__)

EXPIRY_S = 120.0
"""Seconds without a registration after which a broker is forgotten."""

MASTER_ID = 0
_NAMED_MAX = 5
NAME_MAX = 1024
"""Characters of a name: maxBrokers and maxTopics bound memory only when names are bounded."""
KEPT_BYTES_MAX = 64 << 20
"""Bytes of routes that are kept as they are sent."""


class Perm(IntFlag):
    """The permissions of a topic's queues (RocketMQ: PermName)."""

    WRITE = 2
    READ = 4


class TopicSysFlag(IntFlag):
    """Bits of a topic's topicSysFlag (RocketMQ: TopicSysFlag)."""

    UNIT = 1
    UNIT_SUB = 2


class BrokerIdentity(msgspec.Struct, frozen=True):
    """A broker that registers. A master and its slaves share `name`; the master has id 0."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""
    advertised: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Its addresses for further listeners of the name server, by the listener's name."""


class Master(msgspec.Struct, frozen=True):
    """The master's addresses for a slave (RocketMQ: RegisterBrokerResult)."""

    address: str
    ha_address: str


class _LiveBroker(msgspec.Struct):
    """The last registration of an address; `channel` is the connection that it came over."""

    name: str
    last_seen: float
    data_version: DataVersion
    ha_address: str
    filter_servers: list[str]
    channel: Hashable
    advertised: Mapping[str, str]


def _check_lengths(texts: Mapping[str, str]) -> None:
    for what, text in texts.items():
        if len(text) > NAME_MAX:
            raise RegistrationError(
                f"{what} has {len(text)} characters ({text[:40]!r}...): {NAME_MAX} at most"
            )


class RouteTable:
    """All registrations of brokers; `clock` returns monotonic seconds.

    (RocketMQ: RouteInfoManager.)
    """

    def __init__(self, clock: Callable[[], float], config: NamesrvConfig | None = None) -> None:
        limits = config or NamesrvConfig()
        self._broker_limit = TableLimit("maxBrokers", "brokers", lambda: limits.max_brokers)
        self._topic_limit = TableLimit("maxTopics", "topics", lambda: limits.max_topics)
        self._clock = clock
        self._topics = TopicTable()
        self._brokers: dict[str, BrokerData] = {}  # by broker name
        self._live: dict[str, _LiveBroker] = {}  # by address
        self._replaced: dict[str, str] = {}  # broker name -> the master before the present one
        self._left: set[str] = set()  # names that their broker has given up
        self._kept: dict[tuple[Placement, str, bool], bytes] = {}  # routes of these brokers
        self._kept_bytes = 0
        self._doubts = LimitedLog(logger)

    # --- brokers

    def register(
        self,
        broker: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        filter_servers: list[str],
        channel: Hashable,
    ) -> Master | None:
        """Take a registration; it adds and changes topics, and never removes one.

        Returns the master of a slave, None for a master or when there is none. Raises
        RegistrationError for names that are too long, TableFullError when this broker or its
        topics exceed a limit; then no topic is taken.
        """
        _check_lengths(
            {
                "brokerName": broker.name,
                "clusterName": broker.cluster,
                "brokerAddr": broker.address,
                "haServerAddr": broker.ha_address,
                "filterServerList": ",".join(filter_servers),
            }
        )
        wanted = self.wants_topics(broker, topics.data_version)
        data = self._brokers.get(broker.name)
        if data is None:
            self._broker_limit.check(len(self._brokers))
        if broker.address not in self._live:
            self._broker_limit.check(len(self._live))
        if wanted:
            self.take_topics(broker.name, topics.topic_config_table.values())
        if data is None or data.cluster != broker.cluster:
            known = {} if data is None else data.broker_addrs
            data = BrokerData(cluster=broker.cluster, broker_name=broker.name, broker_addrs=known)
            self._brokers[broker.name] = data
        self._leave_old_name(broker)
        if broker.broker_id == MASTER_ID:
            self._note_master(data, broker.address)
        # A slave that became the master registers another id with its old address.
        for stale in [i for i, a in data.broker_addrs.items() if a == broker.address]:
            if stale != broker.broker_id:
                del data.broker_addrs[stale]
        known_live = self._live.get(broker.address)
        if known_live is None:
            logger.info("broker %s registered: %s", broker.name, broker.address)
        live = _LiveBroker(
            name=broker.name,
            last_seen=self._clock(),
            data_version=topics.data_version,
            ha_address=broker.ha_address,
            filter_servers=filter_servers,
            channel=channel,
            advertised=broker.advertised,
        )
        is_shown = (
            data.broker_addrs.get(broker.broker_id) == broker.address
            and known_live is not None
            and known_live.filter_servers == filter_servers
            and known_live.advertised == broker.advertised
        )
        data.broker_addrs[broker.broker_id] = broker.address
        self._live[broker.address] = live
        if not is_shown:
            self._drop_kept()
        return None if broker.broker_id == MASTER_ID else self._master(data)

    def _leave_old_name(self, broker: BrokerIdentity) -> None:
        """Take a broker out of the routes under the name that it had before at its address."""
        live = self._live.get(broker.address)
        if live is None or live.name == broker.name:
            return
        self._doubts.warning(
            "the broker at %s registers as %s, before as %s: that name leaves the routes; if two "
            "brokers announce this address, change brokerIP1 or listenPort of one",
            *(broker.address, broker.name, live.name),
        )
        data = self._brokers.get(live.name)
        if data is None:
            return
        for stale in [i for i, a in data.broker_addrs.items() if a == broker.address]:
            del data.broker_addrs[stale]
        if not data.broker_addrs:
            del self._brokers[live.name]
            self._replaced.pop(live.name, None)
            self._left.add(live.name)

    def _note_master(self, data: BrokerData, address: str) -> None:
        """Say that two brokers take the place of one master in turns."""
        known = data.broker_addrs.get(MASTER_ID)
        if known is None or known == address:
            return
        if known in self._live and self._replaced.get(data.broker_name) == address:
            self._doubts.warning(
                "%s and %s both register as the master of %s, and clients find one or the other: "
                "give one another brokerName, or another brokerId",
                *(address, known, data.broker_name),
            )
        self._replaced[data.broker_name] = known

    def wants_topics(self, broker: BrokerIdentity, version: DataVersion) -> bool:
        """Whether register() takes this broker's topics: a master's that are new or changed."""
        data = self._brokers.get(broker.name)
        is_new = data is None or broker.broker_id not in data.broker_addrs
        return broker.broker_id == MASTER_ID and (
            is_new or self.is_changed(broker.address, version)
        )

    def unregister_steps(self, address: str) -> Steps[None]:
        """Forget a broker that unregisters; another broker that has its id now stays."""
        return self._forget({address})

    def closing_steps(self, channel: Hashable) -> Steps[None]:
        """Forget the brokers that registered last over this connection."""
        gone = {a for a, live in self._live.items() if live.channel is channel}
        if gone:
            logger.warning("connection of %s closed: its routes are removed", _some(gone))
            yield from self._forget(gone)

    def expiry_steps(self) -> Steps[list[Hashable]]:
        """Forget brokers without a registration for EXPIRY_S; return their connections."""
        limit = self._clock() - EXPIRY_S
        expired = {a: live.channel for a, live in self._live.items() if live.last_seen < limit}
        if expired:
            logger.warning("%s silent for %g s: routes are removed", _some(expired), EXPIRY_S)
            yield from self._forget(expired.keys())
        left, self._left = self._left, set()
        yield from self._remove_queues(left)
        return list(expired.values())

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Whether `version` differs from the broker's last registration."""
        return self.data_version(address) != version

    def data_version(self, address: str) -> DataVersion | None:
        """The data version of a broker's last registration, None without one."""
        live = self._live.get(address)
        return None if live is None else live.data_version

    def touch(self, address: str) -> None:
        """Note that the broker is alive."""
        live = self._live.get(address)
        if live is not None:
            live.last_seen = self._clock()

    def _master(self, data: BrokerData) -> Master | None:
        address = data.broker_addrs.get(MASTER_ID)
        live = None if address is None else self._live.get(address)
        if address is None or live is None:
            return None
        return Master(address, live.ha_address)

    def _forget(self, addresses: Set[str]) -> Steps[None]:
        """Forget brokers in one pass."""
        for address in addresses:
            self._live.pop(address, None)
        empty = set()
        for name, data in list(self._brokers.items()):
            for broker_id in [i for i, a in data.broker_addrs.items() if a in addresses]:
                del data.broker_addrs[broker_id]
            if not data.broker_addrs:
                del self._brokers[name]
                self._replaced.pop(name, None)
                empty.add(name)
        self._drop_kept()
        yield from self._remove_queues(empty)

    def _remove_queues(self, broker_names: Set[str]) -> Steps[None]:
        for topics in self._topics.portions() if broker_names else ():
            # A broker that registered again meanwhile keeps its queues.
            self._topics.remove(topics, broker_names - self._brokers.keys())
            yield

    # --- topics

    def route(self, topic: str, listener: str = "") -> TopicRouteData | None:
        """Queues and brokers of a topic, None when there are none.

        The addresses are those that brokers advertise for this listener of the name server.
        """
        placement = self._topics.get(topic)
        return None if placement is None else self._route(placement, listener)

    def route_body(self, topic: str, listener: str, *, standard: bool) -> bytes | None:
        """The same, encoded as TopicRouteData.encode_for(); it is kept until a broker changes."""
        placement = self._topics.get(topic)
        if placement is None:
            return None
        key = placement, listener, standard
        body = self._kept.get(key)
        if body is None:
            route = self._route(placement, listener)
            if route is None:
                return None
            body = route.encode_as(standard=standard)
            if self._kept_bytes + len(body) > KEPT_BYTES_MAX:
                self._drop_kept()
            self._kept[key] = body
            self._kept_bytes += len(body)
        return body

    def _drop_kept(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def _route(self, placement: Placement, listener: str) -> TopicRouteData | None:
        queues = [each for each in placement.queues if each.broker_name in self._brokers]
        if not queues:
            return None
        brokers = [self._brokers[each.broker_name] for each in queues]
        addresses = [address for data in brokers for address in data.broker_addrs.values()]
        filter_servers = {a: self._live[a].filter_servers for a in addresses if a in self._live}
        return TopicRouteData(
            queue_datas=[QueueData(*each) for each in queues],
            broker_datas=[self._advertised(data, listener) for data in brokers],
            filter_server_table={a: servers for a, servers in filter_servers.items() if servers},
        )

    def _advertised(self, data: BrokerData, listener: str) -> BrokerData:
        if not listener:
            return data
        addresses = {}
        for broker_id, address in data.broker_addrs.items():
            live = self._live.get(address)
            found = None if live is None else live.advertised.get(listener)
            addresses[broker_id] = found or address
        return msgspec.structs.replace(data, broker_addrs=addresses)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, or only its queues on the brokers of a cluster."""
        placement = self._topics.get(topic)
        if placement is not None:
            names = {each.broker_name for each in placement.queues}
            self._topics.remove([topic], names if cluster is None else self._names(cluster))

    def change_perm(self, broker_name: str, change: Callable[[int], int]) -> Steps[int]:
        """Change the permissions of a broker's queues until it registers changes.

        Returns the number of queues.
        """
        return self._topics.change_perm(broker_name, change)

    def wipe_write_perm(self, broker_name: str) -> Steps[int]:
        """Remove the write permission of a broker's queues; returns their number."""
        return self.change_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, broker_name: str) -> Steps[int]:
        """Make all queues of a broker readable and writable; returns their number."""
        return self.change_perm(broker_name, lambda _: int(Perm.READ | Perm.WRITE))

    def take_topics(self, broker_name: str, topics: Iterable[TopicConfig]) -> None:
        """Add and change topics of a broker that registers.

        Raises TableFullError when they exceed maxTopics, RegistrationError when a name is too
        long; then none is taken.
        """
        topics = list(topics)
        names = [topic.topic_name for topic in topics]
        if names and max(map(len, names)) > NAME_MAX:
            _check_lengths({"topicName": max(names, key=len)})
        if not self._topic_limit.has_room(self._topics.entries, len(names)):
            new = self._topics.count_new(broker_name, names)
            self._topic_limit.check(self._topics.entries, new)
        self._topics.take(broker_name, topics)

    # --- lists

    def cluster_info(self, listener: str = "") -> ClusterInfo:
        """All clusters and brokers, with the addresses for this listener."""
        brokers = self._brokers.items()
        return ClusterInfo(
            broker_addr_table={name: self._advertised(data, listener) for name, data in brokers},
            cluster_addr_table={name: sorted(of) for name, of in self._clusters().items()},
        )

    def topics(self) -> TopicList:
        """The names of all topics."""
        return TopicList(topic_list=list(self._topics))

    def topics_of_cluster(self, cluster: str) -> Steps[TopicList]:
        """The names of the topics on brokers of a cluster."""
        names = self._names(cluster)
        return self._topics_where(
            lambda placement: any(each.broker_name in names for each in placement.queues)
        )

    def system_topics(self) -> TopicList:
        """The names of clusters and brokers, which are topics too, and one broker's address."""
        names = [name for cluster, of in self._clusters().items() for name in (cluster, *of)]
        addresses = (a for data in self._brokers.values() for a in data.broker_addrs.values())
        return TopicList(topic_list=names, broker_addr=next(addresses, None))

    def unit_topics(self) -> Steps[TopicList]:
        """The topics with the flag UNIT."""
        return self._topics_flagged(TopicSysFlag.UNIT, TopicSysFlag.UNIT)

    def unit_sub_topics(self) -> Steps[TopicList]:
        """The topics with the flag UNIT_SUB."""
        return self._topics_flagged(TopicSysFlag.UNIT_SUB, TopicSysFlag.UNIT_SUB)

    def unit_sub_ununit_topics(self) -> Steps[TopicList]:
        """The topics with the flag UNIT_SUB and without UNIT."""
        return self._topics_flagged(
            TopicSysFlag.UNIT | TopicSysFlag.UNIT_SUB, TopicSysFlag.UNIT_SUB
        )

    def _topics_flagged(self, looked_at: int, wanted: int) -> Steps[TopicList]:
        """Topics whose flag has these bits as wanted on their first broker."""
        looked_at, wanted = int(looked_at), int(wanted)  # quicker to compare than flags
        return self._topics_where(
            lambda placement: placement.queues[0].topic_sys_flag & looked_at == wanted
        )

    def _topics_where(self, chosen: Callable[[Placement], bool]) -> Steps[TopicList]:
        """Topics for whose placement `chosen` returns True."""
        found: list[str] = []
        for topics in self._topics.portions():
            placements = ((topic, self._topics.get(topic)) for topic in topics)
            found += [topic for topic, placement in placements if placement and chosen(placement)]
            yield
        return TopicList(topic_list=found)

    def _clusters(self) -> dict[str, list[str]]:
        """Broker names by cluster."""
        found: dict[str, list[str]] = {}
        for name, data in self._brokers.items():
            found.setdefault(data.cluster, []).append(name)
        return found

    def _names(self, cluster: str) -> set[str]:
        return {name for name, data in self._brokers.items() if data.cluster == cluster}


def _some(addresses: Collection[str]) -> str:
    """Brokers for a log line: the names of the first, and the number of others."""
    named = ", ".join(itertools.islice(addresses, _NAMED_MAX))
    more = len(addresses) - _NAMED_MAX
    return f"broker {named}" if more <= 0 else f"broker {named} and {more} others"
