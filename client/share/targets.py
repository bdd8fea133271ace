"""Which queues a share consumer asks for messages (RocketMQ 5: RebalanceImpl.getRebalanceResult
of a group whose broker balances)."""

from congreve.base.errors import CongreveError
from congreve.client.consumer.group_client import GroupClient
from congreve.client.errors import BrokerError, RouteNotFoundError
from congreve.client.logs import Log
from congreve.client.message import MessageQueue
from congreve.client.share.popping import ALL_QUEUES
from congreve.client.transport.route import MASTER_ID
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.pop_bodies import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)

log = Log(__name__)

AVERAGELY = "AVG"
POP = "POP"


class Targets:
    """The queues of a consumer: all of each broker, or those that a broker assigned.

    A group with many members on many queues may have a share number (mqadmin setConsumeMode); then
    each member asks for some queues only. (RocketMQ 5: QUERY_ASSIGNMENT.)
    """

    def __init__(self, client: GroupClient, topics: list[str]) -> None:
        self._client = client
        self._topics = topics
        self.queues: list[MessageQueue] = []
        """In the order in which to ask; id -1 stands for all queues of a broker."""

    async def refresh(self) -> bool:
        """Look at the routes and ask for assignments; returns whether the queues changed. A topic
        that no broker has gets no queue. Raises nothing."""
        found = []
        for topic in self._topics:
            try:
                found += await self._find(topic)
            except RouteNotFoundError:
                log.warning("topic does not exist yet", group=self._client.group, topic=topic)
            except CongreveError as error:
                log.warning("queues not found", group=self._client.group, topic=topic, error=error)
                found += [queue for queue in self.queues if queue.topic == topic]
        changed = set(found) != set(self.queues)
        if changed:
            self.queues = found
            log.info("queues to ask", group=self._client.group, queues=found)
        return changed

    async def _find(self, topic: str) -> list[MessageQueue]:
        route = await self._client.routes.find(topic)
        brokers = sorted({queue.broker_name for queue in route.read_queues})
        for broker_name in brokers:
            assigned = await self._assigned(topic, broker_name)
            if assigned is not None:
                return [queue for queue in assigned if queue.broker_name in brokers]
        return [MessageQueue(topic, broker_name, ALL_QUEUES) for broker_name in brokers]

    async def _assigned(self, topic: str, broker_name: str) -> list[MessageQueue] | None:
        """The queues that a broker assigned to this member of a group that pops; else None."""
        client = self._client
        body = QueryAssignmentRequestBody(
            topic=topic,
            consumer_group=client.group,
            client_id=client.client_id,
            strategy_name=AVERAGELY,
        )
        try:
            address = client.routes.address_to_read(broker_name, MASTER_ID)
            answer = await client.demand(address, RequestCode.QUERY_ASSIGNMENT, body=body.encode())
        except CongreveError as error:
            if not _is_unsupported(error):
                log.warning("no assignment", group=client.group, broker=broker_name, error=error)
            return None
        found = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments or []
        return [each.message_queue for each in found if each.mode == POP] or None


def _is_unsupported(error: CongreveError) -> bool:
    return isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
