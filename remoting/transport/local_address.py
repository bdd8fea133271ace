"""The addresses of this host (RocketMQ: RemotingUtil)."""

import socket
from ipaddress import ip_address

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


def is_own_address(address: str) -> bool:
    """Whether a network interface of this machine has this IP address."""
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return not ip_address(address).is_unspecified
