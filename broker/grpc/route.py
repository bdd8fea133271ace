"""QueryRoute and QueryAssignment: where a topic's queues are (RocketMQ 5: RouteActivity)."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from congreve.broker.config import PERM_READ, PERM_WRITE, BrokerConfig
from congreve.broker.grpc.client_settings import is_fifo
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import checked_group, checked_topic
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.requests.message_types import MessageType, topic_type
from congreve.remoting.errors import HeaderError
from congreve.remoting.lanes.call import CallField
from congreve.remoting.messages.addresses import host_port
from congreve.remoting.messages.bodies import TopicConfig

# Numbers of definition.proto.
_NONE, _READ, _WRITE, _READ_WRITE = 1, 2, 3, 4
_IPV4, _IPV6, _DOMAIN_NAME = 1, 2, 3
_MEMBERS_MAX = 16
"""Addresses that each queue of a route repeats."""
_TYPES = {
    MessageType.NORMAL: (1,),
    MessageType.FIFO: (2,),
    MessageType.DELAY: (3,),
    MessageType.TRANSACTION: (4,),
    MessageType.MIXED: (1, 2, 3, 4),
    MessageType.LITE: (5,),
    MessageType.PRIORITY: (6,),
}


class Route:
    """Routes of this broker's topics; `announced` has addresses for clients of listeners, by name.

    (RocketMQ 5: RouteActivity, LocalTopicRouteService.)
    """

    def __init__(
        self, config: BrokerConfig, metadata: Metadata, protos: Any, announced: Mapping[str, str]
    ) -> None:
        self._config = config
        self._announced = announced
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._protos = protos

    def query(self, call: GrpcCall, request: Any) -> Any:
        """Answer a QueryRouteRequest. Raises CallRefusedError."""
        name = checked_topic(request.topic)
        topic = self._topics.announced(name)
        if topic is None:
            raise CallRefusedError(
                Code.TOPIC_NOT_FOUND,
                f"No topic route info in name server for the topic: {name}",
            )
        broker = self._protos.Broker(
            name=self._config.broker_name,
            id=self._config.broker_id,
            endpoints=self._endpoints(call, request.endpoints),
        )
        response = self._protos.QueryRouteResponse()
        response.status.code, response.status.message = Code.OK, "OK"
        for queue_id, permission in _queues(topic):
            response.message_queues.add(
                topic=request.topic,
                id=queue_id,
                permission=permission,
                broker=broker,
                accept_message_types=_TYPES.get(topic_type(topic), (0,)),
            )
        return response

    def assign(self, call: GrpcCall, request: Any) -> Any:
        """Answer a QueryAssignmentRequest: members of a group share all queues. Raises
        CallRefusedError.
        """
        checked_group(request.group)
        asked = self._protos.QueryRouteRequest(topic=request.topic, endpoints=request.endpoints)
        routed = self.query(call, asked)
        readable = [
            each for each in routed.message_queues if each.permission in (_READ, _READ_WRITE)
        ]
        if not readable:
            raise CallRefusedError(Code.FORBIDDEN, "no readable queue")
        if not is_fifo(self._groups.find(request.group.name)):
            del readable[1:]
            readable[0].id = -1
        response = self._protos.QueryAssignmentResponse(status=routed.status)
        for each in readable:
            response.assignments.add(message_queue=each)
        return response

    def _endpoints(self, call: GrpcCall, known: Any) -> Any:
        """The addresses for the caller: of an elected group all that it knows, if they are several.

        Only the master listens there, so a client finds the new master behind another address.
        """
        is_elected = self._config.election.ha_mode != "classic"
        announced = call.connection.listener in self._announced
        if is_elected and not announced and 1 < len(known.addresses) <= _MEMBERS_MAX:
            return known
        return self.endpoints(call)

    def endpoints(self, call: GrpcCall) -> Any:
        """The address for the caller: the one of its listener, or that it has used already."""
        address = self._announced.get(call.connection.listener)
        if address is None:
            address = call.fields.get(CallField.AUTHORITY, "")
        try:
            host, port = host_port(address)
        except HeaderError:
            host, port = self._config.broker_ip1, self._config.grpc_port
        host = host.strip("[]")
        found = self._protos.Endpoints(scheme=_scheme(host))
        found.addresses.add(host=host, port=port)
        return found


def _queues(topic: TopicConfig) -> Iterator[tuple[int, int]]:
    """The id and the permission of each queue: those that one can read and write come first."""
    read, write = topic.read_queue_nums, topic.write_queue_nums
    if not topic.perm & PERM_READ:
        read = 0
    if not topic.perm & PERM_WRITE:
        write = 0
    if not topic.perm & (PERM_READ | PERM_WRITE):
        yield 0, _NONE
    for queue_id in range(max(read, write)):
        if queue_id < min(read, write):
            yield queue_id, _READ_WRITE
        else:
            yield queue_id, _READ if read > write else _WRITE


def _scheme(host: str) -> int:
    try:
        return _IPV6 if ip_address(host).version == 6 else _IPV4
    except ValueError:
        return _DOMAIN_NAME
