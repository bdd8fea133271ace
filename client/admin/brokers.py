"""The brokers of a cluster, and requests to all of them (RocketMQ: DefaultMQAdminExtImpl)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from congreve.client.errors import BrokerError, BrokerNotFoundError
from congreve.client.transport.instance import ClientInstance
from congreve.client.transport.route import MASTER_ID
from congreve.remoting.messages.bodies import ClusterInfo
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand

T = TypeVar("T")
U = TypeVar("U")

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group that every broker has, for tools (RocketMQ: MixAll.TOOLS_CONSUMER_GROUP)."""
AT_ONCE = 32
"""Maximum number of requests that one call has in flight."""


class Brokers:
    """Requests of an admin client to the master brokers (RocketMQ: DefaultMQAdminExtImpl)."""

    def __init__(self, client: ClientInstance) -> None:
        self._client = client

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers."""
        self._client.check_running()
        request = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await self._client.name_servers.demand(request)
        return ClusterInfo.decode(answer.body)

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Addresses of masters by broker name, of one cluster or of all.

        Raises BrokerNotFoundError when the cluster is unknown, or there is no master.
        """
        info = await self.cluster_info()
        if cluster is None:
            names = set(info.broker_addr_table)
        elif cluster in info.cluster_addr_table:
            names = set(info.cluster_addr_table[cluster])
        else:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise BrokerNotFoundError(
                f"cluster {cluster} is unknown; the name servers have {known}"
            )
        brokers = {name: info.broker_addr_table.get(name) for name in sorted(names)}
        masters = {
            name: data.broker_addrs[MASTER_ID]
            for name, data in brokers.items()
            if data is not None and MASTER_ID in data.broker_addrs
        }
        if not masters:
            raise BrokerNotFoundError(
                "the name servers have no master"
                if cluster is None
                else f"cluster {cluster} has no registered master"
            )
        return masters

    async def ask_masters(
        self,
        code: RequestCode,
        fields: Mapping[str, str] | None = None,
        *,
        accept: Sequence[ResponseCode] = (),
        cluster: str | None = None,
    ) -> dict[str, RemotingCommand]:
        """Answers of all masters by broker name; one with a code of `accept` is left out.

        Raises BrokerError when a broker refuses with another code.
        """
        masters = await self.masters(cluster)

        async def ask(item: tuple[str, str]) -> tuple[str, RemotingCommand | None]:
            return item[0], await self.ask(item[1], code, fields, accept=accept)

        answers = await in_turns(ask, list(masters.items()))
        return {name: answer for name, answer in answers if answer is not None}

    async def ask(
        self,
        address: str,
        code: RequestCode,
        fields: Mapping[str, str] | None = None,
        *,
        accept: Sequence[ResponseCode] = (),
    ) -> RemotingCommand | None:
        """A broker's answer; None for a code of `accept`. Raises BrokerError for another."""
        answer = await self._client.ask(address, code, fields)
        if answer.code in accept:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer


async def in_turns(
    work: Callable[[T], Awaitable[U]], items: Sequence[T], *, at_once: int = AT_ONCE
) -> list[U]:
    """The results of `work` for all items, in order; at most `at_once` run at the same time."""
    limit = asyncio.Semaphore(at_once)

    async def one(item: T) -> U:
        async with limit:
            return await work(item)

    return list(await asyncio.gather(*map(one, items)))
