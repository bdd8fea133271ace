"""What the user's code may raise: listeners, hooks, strategies, checks of transactions.

A listener that awaits a cancelled task raises CancelledError, a script may call sys.exit(), and a
library may have errors that are no Exception. Java catches Throwable around such calls; here
everything is a failure of that call, but not the cancellation of the task that makes it, and not an
interrupt from the keyboard.
"""

import asyncio


def raise_unless_failure(error: BaseException) -> None:
    """Raise the error again if it is the cancellation of the current task, or an interrupt."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
