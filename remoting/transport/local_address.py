"""The address of this host (RocketMQ: RemotingUtil)."""

import socket

LOOPBACK = "127.0.0.1"


def local_address() -> str:
    """The IPv4 address that this host sends from (RocketMQ: RemotingUtil.getLocalAddress)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; 192.0.2.0/24 is for documentation.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])
