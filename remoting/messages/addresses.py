"""Addresses as text: ``host:port``, and of several name servers ``host:port;host:port``."""

import re

from congreve.remoting.errors import HeaderError

_HOST = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,255}")
_SCHEME = re.compile(r"\w+://")


def host_port(address: str) -> tuple[str, int]:
    """The host, without brackets, and the port. Raises HeaderError, which names the cure."""
    host, _, port = address.rpartition(":")
    if _HOST.fullmatch(host) and re.fullmatch("[0-9]{1,5}", port) and int(port) <= 65535:
        return host.strip("[]"), int(port)
    shown = repr(address[:300])
    if scheme := _SCHEME.match(address):
        raise HeaderError(f"{shown} is not an address: write HOST:PORT without {scheme[0]}")
    if "," in address:
        raise HeaderError(f"{shown} is not an address: put ; between addresses")
    if ":" not in address and _HOST.fullmatch(address):
        raise HeaderError(f"{shown} has no port: write HOST:PORT")
    raise HeaderError(f"{shown} is not an address: write HOST:PORT")


def parse_name_servers(text: str) -> list[str]:
    """The addresses in a setting such as RocketMQ's namesrvAddr. Raises HeaderError for one that
    no host can have."""
    addresses = [part.strip() for part in text.split(";") if part.strip()]
    for address in addresses:
        host_port(address)
    return addresses
