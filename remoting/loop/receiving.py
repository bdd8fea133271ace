"""The first bytes of a connection, before it has a protocol."""

import asyncio
import socket


async def receive(
    peer: socket.socket, size: int, received: bytes = b"", *, closed: Exception
) -> bytes:
    """The received bytes, and more until there are `size`.

    Raises `closed` when the other end closes the connection before that, OSError when it fails.
    """
    while len(received) < size:
        data = await asyncio.get_running_loop().sock_recv(peer, size - len(received))
        if not data:
            raise closed
        received += data
    return received
