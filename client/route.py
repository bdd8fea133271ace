"""Where topics live, as the name servers say (RocketMQ: MQClientInstance, TopicPublishInfo)."""

import asyncio
import random
from collections.abc import Iterator, Mapping

import msgspec

from congreve.client.errors import (
    BrokerError,
    BrokerNotFoundError,
    ClientError,
    NoNameServerError,
    RouteNotFoundError,
)
from congreve.client.logs import Log
from congreve.remoting.bodies import MessageQueue, QueueData, TopicRouteData
from congreve.remoting.client import RemotingClient
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.errors import RemotingError
from congreve.remoting.headers import GetRouteInfoRequestHeader

log = Log(__name__)

CREATE_TOPIC_KEY = "TBW102"
"""The topic whose route a topic gets that does not exist yet (AUTO_CREATE_TOPIC_KEY_TOPIC)."""
DEFAULT_TOPIC_QUEUES = 4
REFRESH_S = 30.0
MASTER_ID = 0
PERM_WRITE, PERM_READ = 2, 4

_NO_BROKER: Mapping[int, str] = {}


class NameServers:
    """The configured name servers; one is asked until it fails, then the next."""

    def __init__(self, addresses: str, remoting: RemotingClient, *, timeout_s: float) -> None:
        self.addresses = [part.strip() for part in addresses.split(";") if part.strip()]
        if not self.addresses:
            raise NoNameServerError(f"no name server in {addresses!r}: write host:port;host:port")
        self._remoting = remoting
        self._timeout_s = timeout_s
        self._order = random.sample(self.addresses, len(self.addresses))

    async def ask(self, command: RemotingCommand) -> tuple[RemotingCommand, str]:
        """The answer of the first that gives one, and its address. Raises NoNameServerError."""
        failures = []
        for address in list(self._order):
            try:
                return await self._remoting.invoke(address, command, self._timeout_s), address
            except RemotingError as error:
                failures.append(f"{address}: {error}")
                if self._order[0] == address:
                    self._order.append(self._order.pop(0))
        raise NoNameServerError(f"no name server answered: {'; '.join(failures)}")

    async def demand(self, command: RemotingCommand) -> RemotingCommand:
        """An answer of success. Raises NoNameServerError, or BrokerError for another answer."""
        answer, address = await self.ask(command)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    async def ask_all(self, command: RemotingCommand) -> None:
        """Have every name server do something. Raises ClientError where one did not."""
        for address in self.addresses:
            try:
                answer = await self._remoting.invoke(address, command, self._timeout_s)
            except RemotingError as error:
                raise NoNameServerError(f"{address}: {error}") from error
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, address)


class TopicRoute(msgspec.Struct, frozen=True):
    """Queues of a topic; `brokers` has the addresses by broker name and broker id (0: master)."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: dict[str, dict[int, str]]

    def master(self, broker_name: str) -> str | None:
        """Its address, where the route names it."""
        return self.brokers.get(broker_name, _NO_BROKER).get(MASTER_ID)


class RouteCache:
    """Routes of the topics that were asked for; `refresh` is to be called each REFRESH_S.

    What asks nobody may be called by any thread.
    """

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._routes: dict[str, TopicRoute] = {}
        self._lookups: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._inherited: set[str] = set()

    def known(self, topic: str) -> TopicRoute | None:
        """What find() with `inherit` would return without asking anybody."""
        return self._routes.get(topic)

    async def find(self, topic: str, *, inherit: bool = False) -> TopicRoute:
        """The route of a topic; with `inherit`, one that does not exist yet gets that of TBW102.

        Raises RouteNotFoundError or NoNameServerError.
        """
        known = self._routes.get(topic)
        if known is not None and (inherit or topic not in self._inherited):
            return known
        route = await self._look_up(topic)
        if route is None and inherit:
            template = await self._look_up(CREATE_TOPIC_KEY)
            if template is not None:
                route = _inherit(template, topic)
                self._inherited.add(topic)
                self._routes[topic] = route
        if route is None:
            raise _not_found(topic)
        return route

    async def refresh(self) -> bool:
        """Ask again for all topics; returns whether a route changed. Raises nothing."""
        changed = False
        for topic in list(self._routes):
            try:
                before = self._routes.get(topic)
                route = await self._look_up(topic)
            except ClientError as error:
                log.warning("route kept as it was", topic=topic, error=error)
                continue
            changed = changed or (route is not None and route != before)
        return changed

    def address(self, broker_name: str) -> str:
        """Address of a master. Raises BrokerNotFoundError."""
        address = self._addresses(broker_name).get(MASTER_ID)
        if address is None:
            raise BrokerNotFoundError(f"no route names a master of broker {broker_name}")
        return address

    def address_to_read(self, broker_name: str, broker_id: int) -> str:
        """Address of the broker with that id, else of any of that name. BrokerNotFoundError."""
        addresses = self._addresses(broker_name)
        if not addresses:
            raise BrokerNotFoundError(f"no route names a broker {broker_name}")
        return addresses.get(broker_id) or addresses[min(addresses)]

    def addresses(self, *, masters_only: bool) -> set[str]:
        """Addresses of all brokers that routes name."""
        return {
            address
            for route in list(self._routes.values())
            for brokers in route.brokers.values()
            for broker_id, address in brokers.items()
            if broker_id == MASTER_ID or not masters_only
        }

    def _addresses(self, broker_name: str) -> dict[int, str]:
        for route in list(self._routes.values()):
            if broker_name in route.brokers:
                return route.brokers[broker_name]
        return {}

    async def _look_up(self, topic: str) -> TopicRoute | None:
        """Ask the name servers, once however many wait; None where there is no such topic."""
        task = self._lookups.get(topic)
        if task is None:
            task = asyncio.create_task(self._ask(topic))
            self._lookups[topic] = task
            task.add_done_callback(lambda _: self._lookups.pop(topic, None))
        return await asyncio.shield(task)

    async def fetch(self, topic: str) -> TopicRouteData:
        """The route as the name servers have it now. Raises RouteNotFoundError."""
        fields = GetRouteInfoRequestHeader(topic=topic).fields()
        request = RemotingCommand(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields)
        try:
            answer = await self._name_servers.demand(request)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise _not_found(topic) from error
            raise
        return TopicRouteData.decode(answer.body)

    async def _ask(self, topic: str) -> TopicRoute | None:
        try:
            route = _read(topic, await self.fetch(topic))
        except RouteNotFoundError:
            return None
        if topic != CREATE_TOPIC_KEY:
            self._routes[topic] = route
            self._inherited.discard(topic)
        return route


def _not_found(topic: str) -> RouteNotFoundError:
    return RouteNotFoundError(f"topic {topic} is on no broker that the name servers know")


def _read(topic: str, data: TopicRouteData) -> TopicRoute:
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    queues = sorted(data.queue_datas, key=lambda queue: queue.broker_name)
    if data.order_topic_conf:
        write_queues = tuple(_ordered(topic, data.order_topic_conf))
    else:
        write_queues = tuple(
            MessageQueue(topic=topic, broker_name=queue.broker_name, queue_id=queue_id)
            for queue in queues
            if queue.perm & PERM_WRITE and MASTER_ID in brokers.get(queue.broker_name, {})
            for queue_id in range(queue.write_queue_nums)
        )
    return TopicRoute(topic, write_queues, _read_queues(topic, queues), brokers)


def _read_queues(topic: str, queues: list[QueueData]) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic=topic, broker_name=queue.broker_name, queue_id=queue_id)
        for queue in queues
        if queue.perm & PERM_READ
        for queue_id in range(queue.read_queue_nums)
    )


def _ordered(topic: str, conf: str) -> Iterator[MessageQueue]:
    """Queues out of ``broker:queues;broker:queues``."""
    for part in filter(None, conf.split(";")):
        broker_name, _, queues = part.partition(":")
        for queue_id in range(int(queues) if queues.isdecimal() else 0):
            yield MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


def _inherit(template: TopicRoute, topic: str) -> TopicRoute:
    """What the topic's route will be, once a send has created it from the template."""
    masters = {name for name, addresses in template.brokers.items() if MASTER_ID in addresses}
    queues = tuple(
        msgspec.structs.replace(queue, topic=topic)
        for queue in template.read_queues
        if queue.queue_id < DEFAULT_TOPIC_QUEUES and queue.broker_name in masters
    )
    return TopicRoute(topic, queues, queues, template.brokers)
