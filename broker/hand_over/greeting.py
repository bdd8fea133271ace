"""The first bytes of a connection that carries a client's requests to the new master."""

import socket
from ipaddress import ip_address
from typing import cast

from congreve.broker.errors import BrokerError
from congreve.broker.ha_frames import CLIENT
from congreve.remoting.loop import receiving


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
    """See remoting.loop.receiving.receive(). Raises OSError."""
    closed = ConnectionError("the other end has closed the connection: its log says why")
    return await receiving.receive(peer, size, received, closed=closed)
