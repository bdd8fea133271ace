"""Name servers without accounts: a broker with accounts does not start beside one.

A client that reaches an open name server can register a broker of its own and take over routes.
"""

import asyncio
import logging

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.tls import client_ssl
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

logger = logging.getLogger(__name__)

ANSWER_S = 3.0
"""How long the broker waits for the answer of a name server, in seconds."""
CURE = (
    "start it with --acl-folder, or set aclOpenNameServers=true if only trusted machines can reach"
    " it"
)


async def refuse_open_name_servers(config: BrokerConfig) -> None:
    """Raises ConfigError for name servers without accounts, TlsError for unusable settings of TLS.

    Does nothing without `aclEnable`, or with `aclOpenNameServers`. The log names a name server
    that does not answer in time.
    """
    if not config.acl_enable or config.acl_open_name_servers:
        return
    opened = await open_name_servers(config)
    if opened:
        raise ConfigError(
            f"aclEnable=true, but the name server {', '.join(opened)} has no accounts, so any"
            f" client can change its routes: {CURE}"
        )


async def open_name_servers(config: BrokerConfig, answer_s: float = ANSWER_S) -> list[str]:
    """The name servers that answer, without a signature, what only an administrator may read.

    Raises TlsError for settings of TLS that cannot be used.
    """
    client = RemotingClient(timeout_s=answer_s, connect_timeout_s=answer_s, ssl=client_ssl(config))
    addresses = config.name_servers
    try:
        found = await asyncio.gather(*(_is_open(client, address) for address in addresses))
    finally:
        await client.close()
    return [address for address, is_open in zip(addresses, found, strict=True) if is_open]


async def _is_open(client: RemotingClient, address: str) -> bool:
    try:
        answer = await client.invoke(address, RemotingCommand(code=RequestCode.GET_NAMESRV_CONFIG))
    except RemotingError as error:
        logger.warning("it is unknown whether the name server %s has accounts: %s", address, error)
        return False
    return answer.code == ResponseCode.SUCCESS
