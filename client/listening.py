"""What a program does with messages, and what comes of it (RocketMQ: MessageListenerConcurrently,
MessageListenerOrderly)."""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, cast

import msgspec

from congreve.client.errors import ClientError
from congreve.client.message import ReceivedMessage

logger = logging.getLogger(__name__)


class ConsumeResult(Enum):
    """What a listener may return; None means SUCCESS, an exception means LATER."""

    SUCCESS = "CONSUME_SUCCESS"
    LATER = "RECONSUME_LATER"


class ReconsumeLaterError(ClientError):
    """Raised by a listener that wants its message again; level 0 waits longer each time, -1 sends
    it to the dead letters at once."""

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"again, delay level {delay_level}")
        self.delay_level = delay_level


Result = ConsumeResult | None
Listener = Callable[[ReceivedMessage], Result | Awaitable[Result]]
BatchListener = Callable[[list[ReceivedMessage]], Result | Awaitable[Result]]


class Failure(msgspec.Struct, frozen=True):
    """Messages that a listener did not do its work on."""

    messages: list[ReceivedMessage]
    delay_level: int
    reason: str


class Listening:
    """Runs a listener over messages: ``async def`` in the event loop, ``def`` in threads.

    Context variables are those of the task that made this.
    """

    def __init__(
        self,
        listener: Listener | None,
        batch_listener: BatchListener | None,
        *,
        batch: int,
        threads: int,
    ) -> None:
        one = listener if listener is not None else batch_listener
        self._call = cast(Callable[[Any], Any], one)
        self._batch = batch if batch_listener is not None else 0
        self.is_async = _is_async(self._call)
        self._context = contextvars.copy_context()
        self._threads = None if self.is_async else ThreadPoolExecutor(threads, "congreve-listener")

    def close(self) -> None:
        """Let threads end when their listeners return."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, messages: list[ReceivedMessage], *, in_order: bool) -> list[Failure]:
        """What failed; `in_order` stops at the first failure."""
        if self._threads is None:
            return await self._run_async(messages, in_order)
        loop = asyncio.get_running_loop()
        context = self._context.copy()
        work = loop.run_in_executor(self._threads, context.run, self._run, messages, in_order)
        return await work

    async def _run_async(self, messages: list[ReceivedMessage], in_order: bool) -> list[Failure]:
        call, failures = self._call, []
        for unit in self._units(messages):
            try:
                result = await call(unit)
            except ReconsumeLaterError as wish:
                failures.append(_later(unit, wish.delay_level))
            except Exception as error:
                logger.exception("listener failed on %r", unit)
                failures.append(_failed(unit, error))
            else:
                if result is None or result is ConsumeResult.SUCCESS:
                    continue
                failures.append(_later(unit))
            if in_order:
                break
        return failures

    def _run(self, messages: list[ReceivedMessage], in_order: bool) -> list[Failure]:
        call, failures = self._call, []
        for unit in self._units(messages):
            try:
                result = call(unit)
            except ReconsumeLaterError as wish:
                failures.append(_later(unit, wish.delay_level))
            except Exception as error:
                logger.exception("listener failed on %r", unit)
                failures.append(_failed(unit, error))
            else:
                if result is None or result is ConsumeResult.SUCCESS:
                    continue
                failures.append(_later(unit))
            if in_order:
                break
        return failures

    def _units(self, messages: list[ReceivedMessage]) -> Iterator[Any]:
        if not self._batch:
            return iter(messages)
        return (messages[i : i + self._batch] for i in range(0, len(messages), self._batch))


def _failed(unit: Any, error: Exception) -> Failure:
    return Failure(_messages(unit), 0, f"{type(error).__name__}: {error}")


def _later(unit: Any, delay_level: int = 0) -> Failure:
    return Failure(_messages(unit), delay_level, ConsumeResult.LATER.value)


def _messages(unit: Any) -> list[ReceivedMessage]:
    return unit if isinstance(unit, list) else [unit]


def _is_async(call: Callable[[Any], Any]) -> bool:
    inner = call
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    if inspect.iscoroutinefunction(inner):
        return True
    return inspect.iscoroutinefunction(type(inner).__call__)
