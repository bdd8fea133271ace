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

    def check(self, count: int, new: int = 1) -> None:
        """Raises TableFullError if `new` entries beside the present `count` exceed the limit."""
        most = self._most()
        if not new or count + new <= most:
            return
        fault = f"{count} {self._what} and {new} more exceed the limit of {most}"
        self._log.warning("%s: raise %s, or delete unused ones", fault, self._setting)
        raise TableFullError(f"{fault} ({self._setting})")
