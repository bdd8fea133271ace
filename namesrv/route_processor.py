"""Requests for routes and lists of topics (RocketMQ: DefaultRequestProcessor)."""

from collections.abc import Callable

from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KvConfig
from congreve.namesrv.routes import RouteTable, Steps
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_bodies import TopicList
from congreve.remoting.messages.admin_headers import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from congreve.remoting.messages.bodies import is_standard_route
from congreve.remoting.messages.body import Body
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler


class RouteProcessor:
    """Answers from the route table, and deletes topics from it.

    (RocketMQ: DefaultRequestProcessor.)
    """

    def __init__(
        self, routes: RouteTable, kv: KvConfig, config: NamesrvConfig, pieces: Pieces
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._config = config
        self._pieces = pieces

    def handlers(self) -> dict[int, Handler]:
        """The handlers by request code."""
        routes = self._routes
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._listing(routes.topics),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._listing(routes.system_topics),
            RequestCode.GET_UNIT_TOPIC_LIST: self._choosing(routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._choosing(routes.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._choosing(
                routes.unit_sub_ununit_topics
            ),
        }

    def _route(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetRouteInfoRequestHeader.read(request)
        standard = is_standard_route(
            request.version, standard_only=header.accept_standard_json_only
        )
        order = None
        if self._config.order_message_enable:
            order = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
        if order is None:
            body = self._routes.route_body(header.topic, connection.listener, standard=standard)
        else:
            route = self._routes.route(header.topic, connection.listener)
            body = None
            if route is not None:
                route.order_topic_conf = order
                body = route.encode_as(standard=standard)
        if body is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        return request.reply(ResponseCode.SUCCESS, body=body)

    async def _cluster_info(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        return await self._answer(request, self._routes.cluster_info(connection.listener))

    def _delete_topic(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = DeleteTopicFromNamesrvRequestHeader.read(request)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return request.reply(ResponseCode.SUCCESS)

    async def _topics_of_cluster(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        cluster = GetTopicsByClusterRequestHeader.read(request).cluster
        return await self._chosen(request, self._routes.topics_of_cluster(cluster))

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
