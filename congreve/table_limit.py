"""Limits of tables that clients fill."""

import logging
from collections.abc import Callable

from congreve.errors import CongreveError
from congreve.limited_log import LimitedLog

logger = logging.getLogger(__name__)


class TableFullError(CongreveError):
    """A table has reached the limit of its setting; the text names both."""


class TableLimit:
    """The limit of one table.

    `most` returns the setting's current value, `what` names the entries in the plural.
    """

    def __init__(self, setting: str, what: str, most: Callable[[], int]) -> None:
        self._setting = setting
        self._what = what
        self._most = most
        self._log = LimitedLog(logger)

    def check(self, count: int, more: int = 1) -> None:
        """Raises TableFullError where `more` entries do not fit beside `count`."""
        most = self._most()
        if not more or count + more <= most:
            return
        fault = f"{count} {self._what} and {more} more are over the limit of {most}"
        self._log.warning("%s: raise %s, or delete what is not needed", fault, self._setting)
        raise TableFullError(f"{fault} ({self._setting})")
