"""The first bytes of a connection."""

import asyncio
import socket

import pytest

from congreve.remoting.loop.receiving import receive


async def test_it_waits_for_all_bytes_and_takes_no_more() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        theirs.send(b"bc")
        reading = asyncio.create_task(receive(ours, 4, b"a", closed=EOFError()))
        await asyncio.sleep(0)
        theirs.send(b"def")
        assert await reading == b"abcd"
        assert await receive(ours, 2, closed=EOFError()) == b"ef"


async def test_the_caller_chooses_the_error_of_an_early_end() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours:
        with theirs:
            theirs.send(b"a")
        with pytest.raises(LookupError, match="ended"):
            await receive(ours, 2, closed=LookupError("it ended"))
