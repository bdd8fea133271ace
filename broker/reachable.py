"""Whether clients can find a broker and connect to it."""

from collections.abc import Iterator

from congreve.broker.config import BrokerConfig, ip_of
from congreve.remoting.transport.local_address import is_own_address


def unreachable(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Keys with which clients may not reach a broker, and why.

    Raises ConfigError for an address that is neither an IP address nor a known name.
    """
    if not config.name_servers and not config.answer_route_requests:
        yield "namesrvAddr", "it is not set, so clients do not find this broker by a name server"
    hosts = {"brokerIP1": config.broker_ip1, "brokerIP2": config.broker_ip2}
    for key, host in hosts.items():
        if not is_own_address(ip_of(host)):
            yield (
                key,
                (
                    f"no interface of this machine has {host}, to which "
                    + ("clients" if key == "brokerIP1" else "slaves")
                    + " connect: right only where a router passes it on"
                ),
            )
