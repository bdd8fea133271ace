"""Limits for tables that grow with clients' requests."""

import logging
from collections.abc import Callable

from congreve.base.errors import CongreveError
from congreve.base.limited_log import LimitedLog

logger = logging.getLogger(__name__)

NAME_COPIES = 12
"""How often a broker's tables and files hold a name, measured with 100 characters more."""


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


class CreatedOnUse:
    """Weighs the entries of one table that clients created by using them, since the start.

    A client without an account may name anything. The sizes are estimates of what a
    broker's memory grows by. (RocketMQ has no such limit.)
    """

    def __init__(self, what: str, most: Callable[[], int]) -> None:
        self._limit = TableLimit(
            "maxCreatedOnUseBytes", f"bytes of {what} that clients created", most
        )
        self._sizes: dict[str, int] = {}
        self.bytes = 0

    def check(self, name: str, size: int) -> None:
        """Raises TableFullError if a further entry of `size` bytes and its name exceed the limit.

        `size` is without the name.
        """
        self._limit.check(self.bytes, size + NAME_COPIES * len(name))

    def add(self, name: str, size: int) -> None:
        """Count an entry that was created."""
        self.forget(name)
        self._sizes[name] = size + NAME_COPIES * len(name)
        self.bytes += self._sizes[name]

    def forget(self, name: str) -> None:
        """Stop counting an entry, which was deleted, or which an administrator has changed."""
        self.bytes -= self._sizes.pop(name, 0)
