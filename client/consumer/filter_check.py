"""Asks brokers whether they accept the filters of a consumer (RocketMQ:
MQClientInstance.checkClientInBroker)."""

from collections.abc import Iterable
from contextlib import suppress

from congreve.client.consumer.group_client import GroupClient
from congreve.client.errors import BrokerError, InvalidSubscriptionError, RouteNotFoundError
from congreve.client.subscription import Subscription
from congreve.client.transport.route import MASTER_ID
from congreve.records.filter.kinds import SQL92
from congreve.remoting.messages.bodies import CheckClientRequestBody
from congreve.remoting.messages.codes import RequestCode, ResponseCode


async def check_filters(
    client: GroupClient, subscriptions: Iterable[Subscription], version_ms: int
) -> None:
    """Ask a broker of each topic with an SQL92 filter whether it accepts it. A topic may be created
    later. Raises InvalidSubscriptionError."""
    for subscription in subscriptions:
        if subscription.kind != SQL92:
            continue
        with suppress(RouteNotFoundError):
            route = await client.routes.find(subscription.topic)
            address = client.routes.address_to_read(sorted(route.brokers)[0], MASTER_ID)
            body = CheckClientRequestBody(
                client_id=client.client_id,
                group=client.group,
                subscription_data=subscription.data(version_ms),
            )
            await _check_filter(client, subscription, address, body)


async def _check_filter(
    client: GroupClient, subscription: Subscription, address: str, body: CheckClientRequestBody
) -> None:
    try:
        await client.demand(address, RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
    except BrokerError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return
        raise InvalidSubscriptionError(
            f"{address} refuses the filter {subscription.expression!r} of topic"
            f" {subscription.topic}: {error.remark}; SQL92 filters need"
            " enablePropertyFilter=true in its broker.conf"
        ) from error
