"""What the user's code may raise: listeners, hooks, strategies, checks of transactions.

A listener that awaits a cancelled task raises CancelledError, a script may call sys.exit(), and a
library may have errors that are no Exception. Java catches Throwable around such calls; here
everything is a failure of that call, but not the cancellation of the task that makes it, and not an
interrupt from the keyboard.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from congreve.client.logs import Log

log = Log(__name__)

C = TypeVar("C")


def call_after(calls: Iterable[Callable[[C], None]], context: C) -> None:
    """Call the hooks of work that is over: whatever one raises goes to the log, and changes neither
    the result of the work nor what the other hooks see. (RocketMQ: executeSendMessageHookAfter.)"""
    for call in calls:
        try:
            call(context)
        except KeyboardInterrupt:
            raise
        except BaseException:
            log.exception("hook failed", hook=call)


async def end_each(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Let each hook end, also when another one raises; that goes to the log."""
    for call in calls:
        try:
            await call()
        except BaseException as error:
            raise_unless_failure(error)
            log.exception("hook failed", hook=call)


def raise_unless_failure(error: BaseException) -> None:
    """Raise the error again if it is the cancellation of the current task, or an interrupt."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
