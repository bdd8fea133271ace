"""Requests of a slave to its master: where its log is, and its tables."""

from typing import NamedTuple

from congreve.broker.replication.slave_connection import ReplicationError
from congreve.engine.store import MessageStore
from congreve.remoting.messages.bodies import DataVersion, KVTable, TableChanges
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    AwaitTableChangeRequestHeader,
    ViewMessageRequestHeader,
)
from congreve.remoting.messages.table_pages import page_request, read_total
from congreve.remoting.transport.client import RemotingClient

ANSWER_S = 3.0
REPAIR_KEY = "logRepaired"
"""The figure of brokerStatus that shows a broker whose log heals."""


class LogSpan(NamedTuple):
    """The physical offsets between which a master has its log."""

    begin: int
    end: int


class MasterRequests:
    """What a slave asks its master, by requests to its broker's port.

    Any RocketMQ master answers them. Methods raise RemotingError, and ReplicationError where the
    master's answer is not what a master of this log gives.
    """

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def answers_repairs(self) -> bool:
        """Whether its HA port takes connections for repairs; RocketMQ's does not."""
        return REPAIR_KEY in await self._status()

    async def _status(self) -> dict[str, str]:
        answer = await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})
        return KVTable.decode(answer.body).table

    async def span(self) -> LogSpan:
        """Where the log begins and ends now (brokerStatus: commitLogMinOffset, …MaxOffset)."""
        table = await self._status()
        try:
            begin, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (KeyError, ValueError) as error:
            raise ReplicationError(f"{self._address} does not say where its log is") from error
        return LogSpan(max(begin, 0), end)

    async def table(self, code: int) -> bytes:
        """The body of the answer to a request for one of the master's tables."""
        return bytes((await self._ask(code, {})).body)

    async def page(
        self, code: int, first: int, version: DataVersion | None
    ) -> tuple[bytes, int | None]:
        """A page of one of the master's tables from entry `first` on, and how many entries the
        table has; None: these are all, of a master that does not know pages."""
        answer = await self._answer(page_request(code, first, version))
        return bytes(answer.body), read_total(answer, code)

    async def table_changes(self, member: int, copied: str) -> TableChanges:
        """Wait until topics or groups change, or for a while; `copied` is what this slave has.

        RocketMQ's masters do not know the request: ReplicationError.
        """
        header = AwaitTableChangeRequestHeader(member=member, copied=copied)
        answer = await self._ask(RequestCode.AWAIT_TABLE_CHANGE, header.fields())
        return TableChanges.decode(answer.body)

    async def check_same(self, store: MessageStore, last_record: int) -> None:
        """Compare this store's newest record with the master's at the same place.

        RocketMQ does not: its slave continues in the middle of another log. Raises ReplicationError
        if they differ.
        """
        mine = store.log.read(last_record)
        if mine is None:
            raise ReplicationError(f"this broker's own log has no record at {last_record}")
        answer = await self._ask(
            RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=last_record).fields()
        )
        if answer.body != bytes(mine):
            raise ReplicationError(
                f"the message at {last_record} is another one in the log of {self._address}: the"
                " logs are not of one history; remove this slave's store"
            )

    async def _ask(self, code: int, fields: dict[str, str]) -> RemotingCommand:
        return await self._answer(RemotingCommand(code=code, ext_fields=fields))

    async def _answer(self, command: RemotingCommand) -> RemotingCommand:
        answer = await self._client.invoke(self._address, command, ANSWER_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ReplicationError(
                f"{self._address} answers request {command.code} with {answer.code}:"
                f" {answer.remark}"
            )
        return answer
