"""Requests that read a damaged queue entry wait until a thread has repaired it."""

import asyncio
import inspect
from collections.abc import Awaitable
from functools import wraps

from congreve.engine.readable_store import DamagedEntryError
from congreve.engine.recovery.repair_thread import RepairThread
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Answer, Handler


def after_repair(repairs: RepairThread, handler: Handler) -> Handler:
    """`handler`, called again after a repair when it raised DamagedEntryError.

    It must raise that before it changes anything.
    """

    @wraps(handler)
    def handling(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
        try:
            return handler(request, connection)
        except DamagedEntryError as error:
            return _again(repairs, error, handler, request, connection)

    return handling


async def _again(
    repairs: RepairThread,
    damage: DamagedEntryError,
    handler: Handler,
    request: RemotingCommand,
    connection: Connection,
) -> Answer:
    await asyncio.wrap_future(repairs.start(damage.queue, damage.offset))
    answer = handler(request, connection)
    return await answer if inspect.isawaitable(answer) else answer
