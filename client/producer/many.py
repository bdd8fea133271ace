"""Sends large numbers of bodies: compiled code encodes them in batches, and several batches are in
flight."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from congreve.base.errors import CongreveError
from congreve.client.errors import InvalidMessageError, SendManyError
from congreve.client.hooks import SendHook
from congreve.client.ids import UniqueIds
from congreve.client.message import Message
from congreve.client.outgoing import Outgoing, batch, encoded_properties, prepare_batches
from congreve.client.producer.columns import pieces
from congreve.client.results import SendResult
from congreve.records.batches.batch import BatchEncoder
from congreve.records.errors import RecordError

BATCH_BYTES = 256 * 1024
IN_FLIGHT = 8
"""Maximum number of batches awaiting an answer."""


def batches(
    like: Message,
    bodies: Any,
    ids: UniqueIds,
    *,
    batch_bytes: int,
    system: Mapping[str, str],
) -> Iterator[Outgoing]:
    """Yield batches of at most `batch_bytes` bytes; each message has the topic, tags, keys and
    properties of `like`.

    Raises InvalidMessageError in place of a batch in which a body is empty, too long or not bytes.
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
                raise InvalidMessageError(f"after body {done} for {like.topic}: {error}") from error
            ids.block(end - start)
            yield batch((like,), body, message_ids, end - start)
            done += end - start
            start = end


def outgoings_of(
    like: Message,
    bodies: Any,
    ids: UniqueIds,
    batch_bytes: int,
    system: Mapping[str, str],
    named: Callable[[Message], Message],
    hooks: Sequence[SendHook],
) -> Iterator[Outgoing]:
    """Yield batches as batches() does; if a hook needs each message, make a message for each body.

    `named` lets the hooks prepare each message, or only the one whose properties all of them share.
    """
    if any(hook.each_of_many for hook in hooks):
        messages = map(named, messages_of(like, bodies))
        return prepare_batches(messages, ids, body_max=batch_bytes, system=system)
    return batches(named(like), bodies, ids, batch_bytes=batch_bytes, system=system)


def messages_of(like: Message, bodies: Any) -> Iterator[Message]:
    """Yield a message for each body, with the topic, tags, keys and properties of `like`."""
    for piece in pieces(bodies):
        if isinstance(piece, list):
            each: Iterator[Any] = iter(piece)
        else:
            data, offsets = memoryview(piece[0]).cast("B"), piece[1].tolist()
            each = (bytes(data[begin:end]) for begin, end in pairwise(offsets))
        for body in each:
            yield msgspec.structs.replace(like, body=body)


async def send_all(
    outgoings: Iterator[Outgoing],
    send: Callable[[Outgoing], Awaitable[SendResult]],
    *,
    in_flight: int,
) -> list[SendResult]:
    """Send batches, at most `in_flight` at a time; returns their results in order.

    After a failure no further batch is sent, and those in flight are awaited. Raises
    InvalidMessageError when the first batch is invalid, SendManyError with the results of the
    stored batches when a later one is invalid or fails.
    """
    results: dict[int, SendResult] = {}
    failures: list[CongreveError] = []
    forbidden: Exception | None = None
    slots = asyncio.Semaphore(in_flight)

    async def one(number: int, outgoing: Outgoing) -> None:
        try:
            results[number] = await send(outgoing)
        except CongreveError as error:
            failures.append(error)
        finally:
            slots.release()

    number = 0
    async with asyncio.TaskGroup() as group:
        while True:
            await slots.acquire()
            if failures:
                break
            try:
                outgoing = next(outgoings, None)
            except InvalidMessageError as error:
                failures.append(error)
                break
            except Exception as error:  # noqa: BLE001 - of a hook that forbids the send
                forbidden = error
                break
            if outgoing is None:
                break
            group.create_task(one(number, outgoing))
            number += 1
    if forbidden is not None:
        raise forbidden
    if failures and not number:
        raise failures[0]
    stored = [results[number] for number in sorted(results)]
    if failures:
        raise SendManyError(failures[0], stored) from failures[0]
    return stored
