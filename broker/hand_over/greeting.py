"""The first bytes of a connection that carries a client's requests to the new master."""

import asyncio
import socket
from ipaddress import ip_address
from typing import cast

from congreve.broker.errors import BrokerError
from congreve.broker.ha_frames import CLIENT


class HandOverError(BrokerError):
    """The other end of a connection for a hand-over breaks the protocol."""


def client_frame(client: tuple[str, int]) -> bytes:
    """What says the address of a client."""
    address = ip_address(client[0].partition("%")[0]).packed
    return CLIENT.pack(len(address), address, client[1])


def client_in(data: bytes) -> tuple[str, int]:
    """The address of a client in these bytes. Raises HandOverError."""
    if len(data) != CLIENT.size:
        raise HandOverError(f"an address in {len(data)} bytes")
    size, address, port = CLIENT.unpack(data)
    if size not in (4, 16):
        raise HandOverError(f"an address of {size} bytes")
    return str(ip_address(cast(bytes, address)[:size])), port


async def receive(peer: socket.socket, size: int, received: bytes = b"") -> bytes:
    """The received bytes, and more until there are so many. Raises OSError."""
    while len(received) < size:
        data = await asyncio.get_running_loop().sock_recv(peer, size - len(received))
        if not data:
            raise ConnectionError("the other end has closed the connection: its log says why")
        received += data
    return received
