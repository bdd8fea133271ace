"""Bodies by the million: batches that are encoded in compiled code and are sent side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from congreve.client.columns import pieces
from congreve.client.errors import InvalidMessageError, SendManyError
from congreve.client.ids import UniqueIds
from congreve.client.message import Message, SendResult
from congreve.client.outgoing import Outgoing, batch, encoded_properties
from congreve.errors import CongreveError
from congreve.records.batch import BatchEncoder
from congreve.records.errors import RecordError

BATCH_BYTES = 256 * 1024
IN_FLIGHT = 8
"""Batches that are sent before the first of them is answered."""


def batches(
    like: Message,
    bodies: Any,
    ids: UniqueIds,
    *,
    batch_bytes: int,
    system: Mapping[str, str],
) -> Iterator[Outgoing]:
    """Batches of at most `batch_bytes`, made when they are asked for, of messages `like` that one.

    Raises InvalidMessageError instead of a batch that has a body that is empty, too long or no
    bytes.
    """
    encoder = BatchEncoder(encoded_properties(like, None, system), batch_bytes)
    done = 0
    for piece in pieces(bodies):
        count = len(piece) if isinstance(piece, list) else len(piece[1]) - 1
        start = 0
        while start < count:
            head, counter = ids.block(0)
            try:
                if isinstance(piece, list):
                    body, message_ids, end = encoder.take_bodies(piece, start, head, counter)
                else:
                    data, offsets = piece
                    body, message_ids, end = encoder.take_column(
                        data, offsets, start, head, counter
                    )
            except (RecordError, TypeError, ValueError, BufferError) as error:
                raise InvalidMessageError(
                    f"behind body {done} for {like.topic}: {error}"
                ) from error
            ids.block(end - start)
            yield batch(like, body, message_ids, end - start)
            done += end - start
            start = end


async def send_all(
    outgoings: Iterator[Outgoing],
    send: Callable[[Outgoing], Awaitable[SendResult]],
    *,
    in_flight: int,
) -> list[SendResult]:
    """Send batches, `in_flight` of them at a time; their results in order.

    After a failure nothing more is sent, but what is on its way is waited for. Raises
    InvalidMessageError before anything is sent, SendManyError with the results of those that are
    stored afterwards.
    """
    results: dict[int, SendResult] = {}
    failures: list[CongreveError] = []
    room = asyncio.Semaphore(in_flight)

    async def one(number: int, outgoing: Outgoing) -> None:
        try:
            results[number] = await send(outgoing)
        except CongreveError as error:
            failures.append(error)
        finally:
            room.release()

    number = 0
    async with asyncio.TaskGroup() as group:
        while True:
            await room.acquire()
            if failures:
                break
            try:
                outgoing = next(outgoings, None)
            except InvalidMessageError as error:
                failures.append(error)
                break
            if outgoing is None:
                break
            group.create_task(one(number, outgoing))
            number += 1
    if failures and not number:
        raise failures[0]
    stored = [results[number] for number in sorted(results)]
    if failures:
        raise SendManyError(failures[0], stored) from failures[0]
    return stored
