"""Waits until readers see a record, which a group may still have to confirm."""

import asyncio

from congreve.engine.log.commit_log import CommitLog


class ShownLog:
    """Those who wait until the log is shown up to an offset; one event loop owns it.

    In an elected group that is when the group has confirmed it, else at once. (RocketMQ 5:
    DefaultMessageStore.getConfirmOffset.)
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def wait(self, end: int, timeout_s: float) -> bool:
        """Wait until the log is shown up to `end`; False if that takes longer."""
        if self._log.shown_end >= end:
            return True
        shown = asyncio.get_running_loop().create_future()
        self._waiting[shown] = end
        try:
            await asyncio.wait_for(shown, timeout_s)
        except TimeoutError:
            return self._log.shown_end >= end
        finally:
            del self._waiting[shown]
        return True

    def look(self) -> None:
        """Wake those whose offset is shown by now."""
        end = self._log.shown_end
        for shown, wanted in self._waiting.items():
            if wanted <= end and not shown.done():
                shown.set_result(None)
