"""The broker's further listeners, and the addresses that it advertises for them."""

import socket
from collections.abc import Mapping
from importlib.util import find_spec

from congreve.broker.errors import BrokerError, ConfigError
from congreve.remoting.errors import HeaderError
from congreve.remoting.http2.built import http2_refusal
from congreve.remoting.messages.addresses import host_port
from congreve.remoting.messages.listeners import format_addresses, parse_addresses

_ANY = ("0.0.0.0", "::")


def advertised_addresses(listeners: str, advertised: str) -> dict[str, str]:
    """The address `host:port` for clients of each listener, by name.

    A listener that is not advertised has the address that it listens on. Raises ConfigError for
    texts that are not listeners, and for an address that clients cannot connect to.
    """
    try:
        listening = parse_addresses(listeners)
        found = listening | parse_addresses(advertised)
    except HeaderError as error:
        raise ConfigError(f"listeners or advertisedListeners: {error}") from error
    for name, address in found.items():
        if name not in listening:
            raise ConfigError(f"advertisedListeners={name}={address}: {name} is not in listeners")
        if host_port(address)[0] in _ANY:
            raise ConfigError(
                f"listeners={name}={address}: clients cannot connect to it; give the address that "
                "they use in advertisedListeners"
            )
    return found


def with_ports(advertised: Mapping[str, str], ports: Mapping[str, int]) -> str:
    """The text of these addresses, with the ports of listeners that the system has picked."""
    found = dict(advertised)
    for name, address in advertised.items():
        host, port = host_port(address)
        if not port:
            found[name] = f"{host}:{ports[name]}"
    return format_addresses(found)


def check_grpc() -> None:
    """Raises BrokerError if this installation cannot serve gRPC."""
    refusal = http2_refusal()
    if refusal is None and find_spec("google.protobuf") is None:
        refusal = "the package protobuf is missing: pip install 'congreve[grpc]'"
    if refusal is not None:
        raise BrokerError(f"grpcPort: {refusal}")


def check_port(host: str, port: int, key: str) -> None:
    """Raises BrokerError for a port that cannot be listened on, before anything is written."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise BrokerError(
                f"cannot listen on {host}:{port} ({key}): {error.strerror}"
            ) from error
