"""A message that is the first one of its queue waits until a thread has made the queue's file."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from congreve.engine.store import MessageStore
from congreve.remoting.messages.command import RemotingCommand

Queue = tuple[str, int]
Put = Callable[[], RemotingCommand | None]


def put_in_turn(
    put: Put, store: MessageStore, *queues: Queue, saved: Awaitable[object] | None = None
) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
    """put(), which appends to these queues (topics with ids): now, or when they have files.

    It first waits for `saved`, too. Making folders and files waits for the disk, which the event
    loop must not. Messages that wait for one queue are appended in their order.
    """
    if saved is None and not _lacking(store, queues):
        return put()
    return _put_later(put, store, queues, saved)


async def _put_later(
    put: Put, store: MessageStore, queues: tuple[Queue, ...], saved: Awaitable[object] | None
) -> RemotingCommand | None:
    if saved is not None:
        await saved
    with ExitStack() as turns:
        for queue in _lacking(store, queues):
            made = turns.enter_context(store.first_files.waiting(*queue))
            await asyncio.shield(asyncio.wrap_future(made))
        return put()


def _lacking(store: MessageStore, queues: tuple[Queue, ...]) -> list[Queue]:
    if not store.writable:
        return []
    return [queue for queue in queues if store.first_files.is_missing(*queue)]
