"""Topic routes from the name servers (RocketMQ: MQClientInstance, TopicPublishInfo)."""

import asyncio
import random
import time
from collections.abc import Mapping

import msgspec

from congreve.client.errors import (
    BrokerError,
    BrokerNotFoundError,
    ClientError,
    InvalidSettingError,
    NoNameServerError,
    RouteNotFoundError,
)
from congreve.client.logs import Log
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from congreve.remoting.errors import (
    BodyError,
    ConnectError,
    ConnectionLostError,
    HeaderError,
    RemotingError,
    RequestTimeoutError,
)
from congreve.remoting.messages.addresses import parse_name_servers
from congreve.remoting.messages.admin_headers import GetRouteInfoRequestHeader
from congreve.remoting.messages.bodies import TopicRouteData
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

log = Log(__name__)

DEFAULT_TOPIC_QUEUES = 4
REFRESH_S = 30.0
STALE_S = 0.5
"""Seconds between two refreshes while brokers fail."""
MASTER_ID = 0
PERM_WRITE, PERM_READ = 2, 4
QUEUES_MAX = 65_536
"""Maximum number of queues in a route; a larger route would only exhaust the memory of clients."""

_NO_BROKER: Mapping[int, str] = {}
_MOVED = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE)
_UNREACHABLE = (ConnectError, ConnectionLostError, RequestTimeoutError, BrokerNotFoundError)


class NameServers:
    """The configured name servers; requests go to one until it fails, then to the next.

    (RocketMQ: MQClientAPIImpl.)
    """

    def __init__(self, addresses: str, remoting: RemotingClient, *, timeout_s: float) -> None:
        try:
            self.addresses = parse_name_servers(addresses)
        except HeaderError as error:
            raise InvalidSettingError(f"name server {error}") from None
        if not self.addresses:
            raise NoNameServerError(
                f"no name server in {addresses!r}: host:port;host:port is expected"
            )
        self._remoting = remoting
        self._timeout_s = timeout_s
        self._order = random.sample(self.addresses, len(self.addresses))

    async def ask(self, command: RemotingCommand) -> tuple[RemotingCommand, str]:
        """Return the first answer and the address of its name server. Raises NoNameServerError
        when none answers."""
        failures = []
        for address in list(self._order):
            try:
                answer = await self._remoting.invoke(address, command, self._timeout_s)
            except RemotingError as error:
                failures.append(_failure(address, error))
            else:
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return answer, address
                failures.append(_no_name_server(address, command))
            if self._order[0] == address:
                self._order.append(self._order.pop(0))
        raise NoNameServerError(f"no name server answered: {'; '.join(failures)}")

    async def demand(self, command: RemotingCommand) -> RemotingCommand:
        """Return an answer. Raises NoNameServerError when no name server answers, BrokerError when
        the code is not SUCCESS."""
        answer, address = await self.ask(command)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    async def ask_all(self, command: RemotingCommand) -> None:
        """Send the request to every name server. Raises ClientError when one of them fails."""
        for address in self.addresses:
            try:
                answer = await self._remoting.invoke(address, command, self._timeout_s)
            except RemotingError as error:
                raise NoNameServerError(f"{address}: {error}") from error
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, address)

    async def ask_each(self, command: RemotingCommand) -> dict[str, RemotingCommand]:
        """The answers of all name servers by their addresses. Raises NoNameServerError when none
        answers."""
        found = await asyncio.gather(
            *(
                self._remoting.invoke(address, command, self._timeout_s)
                for address in self.addresses
            ),
            return_exceptions=True,
        )
        answers: dict[str, RemotingCommand] = {}
        failures = []
        for address, answer in zip(self.addresses, found, strict=True):
            if isinstance(answer, RemotingError):
                failures.append(_failure(address, answer))
            elif not isinstance(answer, RemotingCommand):
                raise answer
            elif answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                failures.append(_no_name_server(address, command))
            else:
                answers[address] = answer
        if not answers:
            raise NoNameServerError(f"no name server answered: {'; '.join(failures)}")
        return answers


def _failure(address: str, error: RemotingError) -> str:
    return str(error) if address in str(error) else f"{address}: {error}"


def _no_name_server(address: str, command: RemotingCommand) -> str:
    return f"{address} does not know request {command.code}: is it a broker?"


class TopicRoute(msgspec.Struct, frozen=True):
    """Queues of a topic (RocketMQ: TopicPublishInfo); `brokers` maps broker name and broker id
    (0: master) to an address."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: dict[str, dict[int, str]]

    def master(self, broker_name: str) -> str | None:
        """The address of a broker's master, None when the route has none."""
        return self.brokers.get(broker_name, _NO_BROKER).get(MASTER_ID)

    def is_writable(self, queue: MessageQueue | None = None) -> bool:
        """Whether a message can be sent to a queue of the topic, or to the given one: a queue
        whose broker has slaves in the route, but no master, is not writable."""
        if queue is None:
            return bool(self.write_queues)
        addresses = self.brokers.get(queue.broker_name)
        return addresses is None or MASTER_ID in addresses


class RouteCache:
    """Routes of all requested topics; call `refresh` every REFRESH_S seconds.

    A broker that fails, or that is not the master any more, makes them stale: `wait_stale` returns
    then. (RocketMQ's clients wait for their next poll.) Methods that are not coroutines may be
    called from any thread. (RocketMQ: MQClientInstance.)
    """

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._routes: dict[str, TopicRoute] = {}
        self._lookups: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._inherited: set[str] = set()
        self._stale = asyncio.Event()
        self._refreshed = asyncio.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None

    def note_error(self, error: Exception) -> None:
        """A request to a broker failed; the routes may have changed."""
        moved = isinstance(error, BrokerError) and error.code in _MOVED
        if moved or isinstance(error, _UNREACHABLE):
            self.note_stale()

    def note_stale(self) -> None:
        """The routes may have changed."""
        if self._loop is not None and not self._stale.is_set():
            self._loop.call_soon_threadsafe(self._stale.set)

    async def wait_stale(self, limit_s: float) -> None:
        """Return when the routes may have changed, or after `limit_s` seconds."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s):
                await self._stale.wait()
        except TimeoutError:
            return
        self._stale.clear()

    def known(self, topic: str) -> TopicRoute | None:
        """The cached route, None when find() with `inherit` would ask a name server."""
        return self._routes.get(topic)

    async def find(self, topic: str, *, inherit: bool = False) -> TopicRoute:
        """Return the route of a topic; with `inherit`, a topic that does not exist gets the route
        of TBW102.

        Raises RouteNotFoundError when no broker has the topic, NoNameServerError when no name
        server answers.
        """
        known = self._routes.get(topic)
        if known is not None and (inherit or topic not in self._inherited):
            return known
        route = await self._look_up(topic)
        if route is None and inherit:
            route = await self._inherit(topic)
        if route is None:
            raise _not_found(topic)
        return route

    async def find_writable(self, topic: str, queue: MessageQueue | None = None) -> TopicRoute:
        """Return a route to which messages can be sent, or to the given queue. While there is none,
        as during an election, wait for a refresh that brings one: a refresh follows every STALE_S
        seconds. Raises as find() with `inherit` does."""
        route = await self.find(topic, inherit=True)
        while not route.is_writable(queue):
            self.note_stale()
            async with self._refreshed:
                await self._refreshed.wait()
            route = self._routes[topic]
        return route

    def wait_writable(self, topic: str, queue: MessageQueue | None, deadline: float) -> TopicRoute:
        """find_writable() for a thread without an event loop, once a route is cached. Raises
        TimeoutError when time.monotonic() is `deadline`."""
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(self.find_writable(topic, queue), self._loop)
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        finally:
            future.cancel()

    async def refresh(self) -> bool:
        """Fetch all routes again; returns whether one changed. Raises nothing."""
        changed = False
        for topic in list(self._routes):
            try:
                before = self._routes.get(topic)
                route = await self._look_up(topic)
                if route is None and topic in self._inherited:
                    route = await self._inherit(topic)
            except ClientError as error:
                log.warning("route not refreshed", topic=topic, error=error)
                continue
            changed = changed or (route is not None and route != before)
        async with self._refreshed:
            self._refreshed.notify_all()
        return changed

    def address(self, broker_name: str) -> str:
        """The address of a broker's master. Raises BrokerNotFoundError when no route has it."""
        address = self._addresses(broker_name).get(MASTER_ID)
        if address is None:
            raise BrokerNotFoundError(f"no route has a master of broker {broker_name}")
        return address

    def address_to_read(self, broker_name: str, broker_id: int) -> str:
        """The address of the broker with that id, else of any broker with that name.

        Raises BrokerNotFoundError when no route has one.
        """
        addresses = self._addresses(broker_name)
        if not addresses:
            raise BrokerNotFoundError(f"no route has a broker {broker_name}")
        return addresses.get(broker_id) or addresses[min(addresses)]

    def addresses(self, *, masters_only: bool) -> set[str]:
        """Addresses of all brokers in the cached routes."""
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

    async def _inherit(self, topic: str) -> TopicRoute | None:
        """Give the topic the route of TBW102; None when that does not exist either."""
        template = await self._look_up(AUTO_CREATE_TOPIC_KEY_TOPIC)
        if template is None:
            return None
        route = _inherited_route(template, topic)
        self._inherited.add(topic)
        self._routes[topic] = route
        return route

    async def _look_up(self, topic: str) -> TopicRoute | None:
        """Ask the name servers, once for all concurrent callers; None when the topic does not
        exist."""
        task = self._lookups.get(topic)
        if task is None:
            task = asyncio.create_task(self._ask(topic))
            self._lookups[topic] = task
            task.add_done_callback(lambda done: self._looked_up(topic, done))
        return await asyncio.shield(task)

    def _looked_up(self, topic: str, task: asyncio.Task[TopicRoute | None]) -> None:
        self._lookups.pop(topic, None)
        if not task.cancelled():
            task.exception()  # its callers may be gone: nothing else takes its error

    async def fetch(self, topic: str) -> TopicRouteData:
        """Fetch the current route from the name servers. Raises RouteNotFoundError when no
        broker has the topic."""
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
        if topic != AUTO_CREATE_TOPIC_KEY_TOPIC:
            self._routes[topic] = route
            self._inherited.discard(topic)
        return route


def _not_found(topic: str) -> RouteNotFoundError:
    return RouteNotFoundError(f"topic {topic} is on no registered broker", topic)


def _read(topic: str, data: TopicRouteData) -> TopicRoute:
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    queues = sorted(data.queue_datas, key=lambda queue: queue.broker_name)
    if data.order_topic_conf:
        counts = _ordered(data.order_topic_conf)
    else:
        counts = [
            (queue.broker_name, queue.write_queue_nums)
            for queue in queues
            if queue.perm & PERM_WRITE and MASTER_ID in brokers.get(queue.broker_name, {})
        ]
    readable = [
        (queue.broker_name, queue.read_queue_nums) for queue in queues if queue.perm & PERM_READ
    ]
    return TopicRoute(topic, _queues(topic, counts), _queues(topic, readable), brokers)


def _queues(topic: str, counts: list[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    """Queues from broker names and numbers of queues. Raises BodyError when there are more than
    QUEUES_MAX."""
    total = sum(max(count, 0) for _, count in counts)
    if total > QUEUES_MAX:
        raise BodyError(
            f"route of topic {topic} with {total} queues: at most {QUEUES_MAX} are allowed"
        )
    return tuple(
        MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
        for broker_name, count in counts
        for queue_id in range(count)
    )


def _ordered(conf: str) -> list[tuple[str, int]]:
    """Parse ``broker:queues;broker:queues`` into broker names and numbers of queues."""
    parts = (part.partition(":") for part in conf.split(";") if part)
    return [
        (name, int(count) if count.isdecimal() and len(count) < 10 else 0)
        for name, _, count in parts
    ]


def _inherited_route(template: TopicRoute, topic: str) -> TopicRoute:
    """The route that the topic will have once a send has created it from the template."""
    masters = {name for name, addresses in template.brokers.items() if MASTER_ID in addresses}
    queues = tuple(
        msgspec.structs.replace(queue, topic=topic)
        for queue in template.read_queues
        if queue.queue_id < DEFAULT_TOPIC_QUEUES and queue.broker_name in masters
    )
    open_to_sends = {queue.broker_name for queue in template.write_queues}
    writable = tuple(queue for queue in queues if queue.broker_name in open_to_sends)
    return TopicRoute(topic, writable, queues, template.brokers)
