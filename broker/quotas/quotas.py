"""The quotas of one broker: their file, their defaults in broker.conf, and the compiled table."""

import asyncio
import logging

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.quota_limits import EVERY_NAME, Kind, Limits, Use, key_of
from congreve.broker.quotas.quota_file import Quota, QuotaFile, Stamp
from congreve.broker.quotas.quota_table import QuotaTable

logger = logging.getLogger(__name__)

_NUMBERS = {kind: number for number, kind in enumerate(Kind)}


class Quotas:
    """Keeps the compiled `table` in step with quotas.yml and broker.conf.

    A name has the limits of the file; without them those of ``*`` in the file, or else those of
    broker.conf. `file` is None for a broker without a folder. (RocketMQ has no quotas.)
    """

    def __init__(
        self, config: BrokerConfig, file: QuotaFile | None, has_accounts: bool = False
    ) -> None:
        self.table = QuotaTable(has_accounts=has_accounts)
        self._config = config
        self._file = file
        self._stamp: Stamp = None
        self._own: dict[tuple[Kind, str], Limits] = {}

    async def load(self) -> None:
        """Read the file before the broker serves. Raises ConfigError if it cannot be used."""
        if self._file is not None:
            self._stamp = await asyncio.to_thread(self._file.stamp)
            self._take(await asyncio.to_thread(self._file.load))
        self.set_defaults()

    async def follow(self) -> None:
        """Read the file again if it has changed; a file that cannot be used changes nothing."""
        if self._file is None:
            return
        stamp = await asyncio.to_thread(self._file.stamp)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            quotas = await asyncio.to_thread(self._file.load)
        except ConfigError as error:
            logger.error("the quotas stay as they are: %s", error)
            return
        self._take(quotas)
        self.set_defaults()
        logger.warning("quotas read again: there are %d", len(quotas))

    def set_defaults(self) -> None:
        """Set the limits of names without their own; broker.conf may have others now."""
        for kind, text in self._config.quota_texts.items():
            limits = self._own.get((Kind(kind), EVERY_NAME)) or Limits.parse(text)
            self.table.set_default(_NUMBERS[Kind(kind)], limits.rates)

    def limited_by_name(self) -> list[tuple[Quota, tuple[int, int, int, int, int]]]:
        """Each name with limits of its own, and how many requests of each use it limited."""
        found = []
        for (kind, name), limits in sorted(self._own.items()):
            if name != EVERY_NAME:
                counts = self.table.limited(_NUMBERS[kind], key_of(kind, name))
                found.append((Quota(kind, name, limits), counts))
        return found

    def limited(self) -> dict[tuple[Kind, Use], int]:
        """The requests of all names that found a quota used up."""
        return {
            (kind, use): count
            for kind, number in _NUMBERS.items()
            for use, count in zip(Use, self.table.limited(number), strict=True)
        }

    def _take(self, quotas: list[Quota]) -> None:
        wanted = {(kind, name): limits for kind, name, limits in quotas}
        for kind, name in self._own.keys() - wanted.keys():
            if name != EVERY_NAME:
                self.table.drop_rates(_NUMBERS[kind], key_of(kind, name))
        for (kind, name), limits in wanted.items():
            if name != EVERY_NAME and self._own.get((kind, name)) != limits:
                self.table.set_rates(_NUMBERS[kind], key_of(kind, name), limits.rates)
        self._own = wanted
