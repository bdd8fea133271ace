"""A broker with accounts, and tools that sign with the key of one of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from congreve.broker.broker import Broker
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.transport.client import RemotingClient

from .tool import Tool, config_of

SECRET = "a-secret-of-its-own"
FILE = f"""
globalWhiteRemoteAddresses:
accounts:
- accessKey: administrator
  secretKey: {SECRET}
  admin: true
- accessKey: both-of-T
  secretKey: {SECRET}
  topicPerms: [T=PUB|SUB]
  groupPerms: [G=SUB, P=PUB]
- accessKey: pub-of-T
  secretKey: {SECRET}
  topicPerms: [T=PUB]
  groupPerms: [G=PUB, P=PUB]
- accessKey: sub-of-T
  secretKey: {SECRET}
  topicPerms: [T=SUB]
  groupPerms: [G=SUB]
- accessKey: other-topic
  secretKey: {SECRET}
  topicPerms: [U=PUB|SUB]
  groupPerms: [H=PUB|SUB]
"""


@asynccontextmanager
async def guarded(
    folder: Path, text: str = FILE, **settings: object
) -> AsyncIterator[tuple[Broker, "Tools"]]:
    """A broker with these accounts, and tools that send requests to it."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "plain_acl.yml").write_text(text)
    (conf / "plain_acl.yml").chmod(0o600)
    config = config_of(folder / "store", acl_enable=True, acl_folder=str(conf), **settings)
    async with Broker(config) as broker:
        tools = Tools(f"127.0.0.1:{broker.port}")
        try:
            yield broker, tools
        finally:
            await tools.close()


class Tools:
    """A tool for each account; None has no key."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._clients: list[RemotingClient] = []

    def of(self, key: str | None, secret: str = SECRET, address: str | None = None) -> Tool:
        """A tool that signs with this key."""
        sign = None if key is None else Credentials(access_key=key, secret_key=secret).sign
        self._clients.append(RemotingClient(before_request=sign))
        return Tool(address or self.address, self._clients[-1])

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()
