"""The client ids of the members of a consumer group."""

from congreve.base.errors import CongreveError
from congreve.client.errors import RouteNotFoundError
from congreve.client.transport.instance import ClientInstance
from congreve.client.transport.route import TopicRoute
from congreve.remoting.messages.bodies import GetConsumerListByGroupResponseBody
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.headers import GetConsumerListByGroupRequestHeader


async def group_members(client: ClientInstance, group: str, route: TopicRoute) -> list[str]:
    """Client ids of a group; any broker of the topic may answer (RocketMQ: findConsumerIdList).

    Raises the last broker's error when none answers.
    """
    fields = GetConsumerListByGroupRequestHeader(consumer_group=group).fields()
    failure: CongreveError | None = None
    for broker_name in sorted(route.brokers):
        try:
            address = client.routes.address_to_read(broker_name, 0)
            answer = await client.demand(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
            return GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list
        except CongreveError as error:
            failure = error
    raise failure or RouteNotFoundError(f"no broker has topic {route.topic}")
