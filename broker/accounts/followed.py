"""The accounts of a server, which reads its files again when they change."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from congreve.broker.accounts.accounts import Accounts
from congreve.broker.accounts.files import AccountFiles, Stamp
from congreve.broker.errors import ConfigError

logger = logging.getLogger(__name__)


class FollowedAccounts:
    """Reads accounts from `files`; it awaits `changed` after they have changed.

    (RocketMQ: PlainPermissionManager.watch.)
    """

    def __init__(
        self, files: AccountFiles, changed: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.files = files
        self.now = Accounts()
        """The current accounts."""
        self._changed = changed
        self._stamp: Stamp = ()
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Read the files before the server serves. Raises ConfigError if no request could pass."""
        self._stamp = await asyncio.to_thread(self.files.stamp)
        self.now = await asyncio.to_thread(self.files.load_for_start)
        if any(pattern.everything for pattern in self.now.white_addresses):
            logger.warning("globalWhiteRemoteAddresses has *: all requests pass unchecked")
        await asyncio.to_thread(self.files.warn_of_readers)

    async def follow(self) -> None:
        """Read the files again if they have changed; a file that cannot be used is logged and
        ignored."""
        async with self._turn:
            stamp = await asyncio.to_thread(self.files.stamp)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                await self._reload()
            except ConfigError as error:
                logger.error("the accounts stay as they are: %s", error)

    async def edit(self, change: Callable[[AccountFiles], None]) -> None:
        """Change the files and read them again. Raises ConfigError or StoreError."""
        async with self._turn:
            await asyncio.to_thread(change, self.files)
            self._stamp = await asyncio.to_thread(self.files.stamp)
            await self._reload()

    async def _reload(self) -> None:
        self.now = await asyncio.to_thread(self.files.load)
        logger.warning("accounts read again: there are %d", len(self.now.by_key))
        if self._changed is not None:
            await self._changed()
