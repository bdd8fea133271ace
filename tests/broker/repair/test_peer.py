"""Connections for repairs: what a peer may send, and what it gets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from congreve.broker.repair.frames import (
    DAMAGED,
    WHOLE,
    WHOLE_MAX,
    Fetch,
    Fetched,
    RepairFrameError,
    frame_in,
)
from congreve.broker.repair.peer import Peer, Records
from congreve.engine.log.named_record import NamedRecord

BESIDE = NamedRecord(100, 50, -7, 1_700_000_000_000)
REQUEST = Fetch(150, 300, BESIDE)


def answered(request: Fetch) -> Records:
    if request.begin == 150:
        return Records(WHOLE, 157, b"records")
    return Records(DAMAGED, 170)


@asynccontextmanager
async def connected(
    *, both: bool
) -> AsyncIterator[tuple[Peer, Peer | socket.socket, asyncio.Task[None]]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    peer = await Peer.of(here, "other", answered)
    running = [asyncio.create_task(peer.run())]
    other: Peer | socket.socket = there
    if both:
        other = await Peer.of(there, "one", answered)
        running.append(asyncio.create_task(other.run()))
    yield peer, other, running[0]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    there.close()


def test_frames_are_read_as_they_were_written() -> None:
    for frame in (REQUEST, Fetched(150, WHOLE, 159, 9), Fetched(0, DAMAGED, 7, 0)):
        assert frame_in(frame.encode()) == frame


@pytest.mark.parametrize(
    "frame",
    [
        REQUEST._replace(begin=-1),
        REQUEST._replace(end=150),
        Fetch(1, 2, NamedRecord(-1, 0, 0, 0)),
        Fetched(1, 9, 1, 0),
        Fetched(1, WHOLE, 1, -1),
        Fetched(1, WHOLE, 2, WHOLE_MAX + 1),
        Fetched(9, DAMAGED, 8, 0),
    ],
)
def test_frames_that_cannot_be_are_refused(frame: Fetch | Fetched) -> None:
    with pytest.raises(RepairFrameError):
        frame_in(frame.encode())


async def test_both_ends_ask_at_once() -> None:
    async with connected(both=True) as (one, other, _):
        assert isinstance(other, Peer)
        answers = await asyncio.gather(
            *(
                end.fetch(REQUEST._replace(begin=150 + late))
                for end in (one, other)
                for late in (0, 1)
            )
        )
    assert answers == [(WHOLE, 157, b"records"), (DAMAGED, 170, b"")] * 2


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n" * 9, Fetched(150, WHOLE, 154, 4).encode() + b"junk"],
)
async def test_a_connection_with_other_bytes_ends(sent: bytes) -> None:
    async with connected(both=False) as (_, there, running):
        assert isinstance(there, socket.socket)
        await asyncio.get_running_loop().sock_sendall(there, sent)
        with pytest.raises(RepairFrameError):
            await running


async def test_a_request_fails_when_the_connection_ends() -> None:
    async with connected(both=False) as (peer, there, running):
        assert isinstance(there, socket.socket)
        asking = asyncio.create_task(peer.fetch(REQUEST))
        assert await asyncio.get_running_loop().sock_recv(there, 999) == REQUEST.encode()
        there.close()
        with pytest.raises(ConnectionError):
            await asking
        await running
