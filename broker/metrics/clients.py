"""The rates that consumers report about themselves."""

import asyncio
import logging

import msgspec

from congreve.broker.group.clients import ClientChannel
from congreve.broker.group.consumers import ConsumerManager
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.admin_bodies import ConsumerRunningInfo, ConsumeStatus
from congreve.remoting.messages.admin_headers import GetConsumerRunningInfoRequestHeader
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand

logger = logging.getLogger(__name__)

ASK_S = 30.0
"""Seconds from one round of questions to the next."""
ANSWER_S = 3.0
CLIENTS_MAX = 1_000
AT_ONCE = 16


class ClientFigures(msgspec.Struct):
    """The rates of one member of a group on one topic."""

    group: str
    topic: str
    client_id: str
    address: str
    status: ConsumeStatus


class ClientReports:
    """Asks the members of groups for their rates, CLIENTS_MAX members at most.

    RocketMQ: the exporter's ClientMetricTaskRunnable, which asks through the broker.
    """

    def __init__(self, consumers: ConsumerManager) -> None:
        self._consumers = consumers
        self.figures: list[ClientFigures] = []
        """The answers of the last round."""

    async def ask(self) -> None:
        """Ask all members that are online; those that do not answer are left out."""
        members = [
            (group.name, client)
            for group in self._consumers.groups.values()
            for client in group.channels.values()
        ][:CLIENTS_MAX]
        found: list[ClientFigures] = []
        for start in range(0, len(members), AT_ONCE):
            asked = (_report(*member) for member in members[start : start + AT_ONCE])
            for answer in await asyncio.gather(*asked):
                found += answer
        self.figures = found


async def _report(group: str, client: ClientChannel) -> list[ClientFigures]:
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client.client_id, jstack_enable=False
    )
    question = RemotingCommand(
        code=RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields=header.fields()
    )
    try:
        answer = await client.connection.invoke(question, ANSWER_S)
        if answer.code != ResponseCode.SUCCESS:
            return []
        info = ConsumerRunningInfo.decode(answer.body)
    except RemotingError as error:
        logger.debug("no running info from %s: %s", client.client_id, error)
        return []
    return [
        ClientFigures(group, topic, client.client_id, client.address, status)
        for topic, status in info.status_table.items()
    ]
