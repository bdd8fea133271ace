"""Waits in asynchronous tests."""

import asyncio
import inspect
from collections.abc import Callable

EVENTUALLY_S = 60
LOOK_S = 0.01


async def eventually(condition: Callable[[], object], timeout_s: float = EVENTUALLY_S) -> None:
    """Return when the condition, which may be awaitable, holds.

    Raises TimeoutError after `timeout_s` seconds.
    """
    async with asyncio.timeout(timeout_s):
        while True:
            met = condition()
            if inspect.isawaitable(met):
                met = await met
            if met:
                return
            await asyncio.sleep(LOOK_S)
