"""Limits for tables that grow with clients' requests."""

import logging
from collections.abc import Callable

from congreve.base.errors import CongreveError
from congreve.base.limited_log import LimitedLog

logger = logging.getLogger(__name__)


class TableFullError(CongreveError):
    """A table has reached its limit; the text names the limit and its setting."""


class TableLimit:
    """The limit of one table.

    `most` returns the setting's current value, `what` names the entries in the plural.
    """

    def __init__(self, setting: str, what: str, most: Callable[[], int]) -> None:
        self._setting = setting
        self._what = what
        self._most = most
        self._log = LimitedLog(logger)

    def has_room(self, count: int, new: int = 1) -> bool:
        """Whether `new` entries beside the present `count` are within the limit."""
        return count + new <= self._most()

    def check(self, count: int, new: int = 1) -> None:
        """Raises TableFullError if `new` entries beside the present `count` exceed the limit."""
        if not new or self.has_room(count, new):
            return
        most = self._most()
        fault = f"{count} {self._what} and {new} more exceed the limit of {most}"
        self._log.warning("%s: raise %s, or delete unused ones", fault, self._setting)
        raise TableFullError(f"{fault} ({self._setting})")
