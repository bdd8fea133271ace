"""Calls from any thread that the event loop carries out together."""

import asyncio
from collections.abc import Callable


class Coalesced:
    """Lets the running event loop call `work`, once for all calls that come before it does."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._due = False

    def __call__(self) -> None:
        """Ask for a call of `work`; any thread may do so."""
        if not self._due:
            self._due = True
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._due = False  # first: a later call may be about something that `work` does not see
        self._work()
