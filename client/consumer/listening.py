"""Calls listeners and interprets their results (RocketMQ: MessageListenerConcurrently,
MessageListenerOrderly)."""

import asyncio
import contextvars
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any, cast

import msgspec

from congreve.client.errors import ClientError, ClientStateError, InvalidSettingError
from congreve.client.hooks import ConsumeContext, ConsumeHook, ConsumeOutcome
from congreve.client.logs import Log
from congreve.client.message import ReceivedMessage
from congreve.client.user_code import call_after, raise_unless_failure

log = Log(__name__)


class ConsumeResult(Enum):
    """Result of a listener; None means SUCCESS, an exception means LATER (RocketMQ:
    ConsumeConcurrentlyStatus)."""

    SUCCESS = "CONSUME_SUCCESS"
    LATER = "RECONSUME_LATER"


class ReconsumeLaterError(ClientError):
    """Raised by a listener to have its message retried.

    Level 0 increases the delay with each attempt, -1 sends the message to the dead letter queue at
    once. Of a batch, `messages` are those to retry, all by default; the others count as consumed
    (RocketMQ: ackIndex).
    """

    def __init__(
        self, delay_level: int = 0, messages: Sequence[ReceivedMessage] | None = None
    ) -> None:
        super().__init__(f"retry requested, delay level {delay_level}")
        self.delay_level = delay_level
        self.messages = messages


Result = ConsumeResult | None
Listener = Callable[[ReceivedMessage], Result | Awaitable[Result]]
BatchListener = Callable[[list[ReceivedMessage]], Result | Awaitable[Result]]


def check_listeners(listener: object, batch_listener: object) -> None:
    """Raises ClientStateError for two listeners, InvalidSettingError for one that is not a
    function."""
    if listener is not None and batch_listener is not None:
        raise ClientStateError("a consumer has one listener: for messages or for batches")
    for call in (listener, batch_listener):
        if call is not None and not callable(call):
            raise InvalidSettingError(f"listener is {call!r}: a function is expected")


class Failure(msgspec.Struct, frozen=True):
    """Messages that a listener failed on, and the delay before their retry."""

    messages: list[ReceivedMessage]
    delay_level: int
    reason: str


class Listening:
    """Calls a listener: ``async def`` in the event loop, ``def`` in threads.

    Context variables are those of the task that created this object. `hooks` are called around each
    call; calls of `timeout_s` or longer are reported to them as timeouts.
    (RocketMQ: ConsumeMessageService.)
    """

    def __init__(
        self,
        listener: Listener | None,
        batch_listener: BatchListener | None,
        *,
        batch: int,
        threads: int,
        hooks: Sequence[ConsumeHook] = (),
        group: str = "",
        timeout_s: float = float("inf"),
    ) -> None:
        one = listener if listener is not None else batch_listener
        self._call = cast(Callable[[Any], Any], one)
        self._batch = batch if batch_listener is not None else 0
        self.is_async = _is_async(self._call)
        self._hooks = hooks
        self._group = group
        self._timeout_s = timeout_s
        if hooks:
            self._call = self._seen_async(self._call) if self.is_async else self._seen(self._call)
        self._context = contextvars.copy_context()
        self._threads = None if self.is_async else ThreadPoolExecutor(threads, "congreve-listener")

    def close(self) -> None:
        """Let the threads end once their listeners have returned."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, messages: list[ReceivedMessage], *, in_order: bool) -> list[Failure]:
        """Call the listener for all messages and return the failures; `in_order` stops at the
        first one."""
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
                failure = _refused(unit, await call(unit))
            except BaseException as error:  # noqa: BLE001 - _raised() logs it
                raise_unless_failure(error)
                failure = _raised(unit, error)
            if failure is None:
                continue
            failures.append(failure)
            if in_order:
                break
        return failures

    def _run(self, messages: list[ReceivedMessage], in_order: bool) -> list[Failure]:
        call, failures = self._call, []
        for unit in self._units(messages):
            try:
                failure = _refused(unit, call(unit))
            except BaseException as error:  # noqa: BLE001 - no interrupt reaches this thread
                failure = _raised(unit, error)
            if failure is None:
                continue
            failures.append(failure)
            if in_order:
                break
        return failures

    def _seen_async(self, call: Callable[[Any], Awaitable[Result]]) -> Callable[[Any], Any]:
        async def seen(unit: Any) -> Result:
            with self._seen_work(unit) as context:
                result = await call(unit)
                context.outcome = _outcome(result)
                return result

        return seen

    def _seen(self, call: Callable[[Any], Result]) -> Callable[[Any], Result]:
        def seen(unit: Any) -> Result:
            with self._seen_work(unit) as context:
                result = call(unit)
                context.outcome = _outcome(result)
                return result

        return seen

    def _seen_work(self, unit: Any) -> AbstractContextManager[ConsumeContext]:
        context = ConsumeContext(group=self._group, messages=_messages(unit), began_at=time.time())
        return hooked(self._hooks, context, self._timeout_s)

    def _units(self, messages: list[ReceivedMessage]) -> Iterator[Any]:
        if not self._batch:
            return iter(messages)
        return (messages[i : i + self._batch] for i in range(0, len(messages), self._batch))


@contextmanager
def hooked(
    hooks: Sequence[ConsumeHook], context: ConsumeContext, timeout_s: float
) -> Iterator[ConsumeContext]:
    """Call the hooks around work on messages; its time, error and TIMEOUT are noted."""
    begin = time.monotonic()
    for hook in hooks:
        hook.before_consume(context)
    try:
        yield context
    except ReconsumeLaterError:
        context.outcome = ConsumeOutcome.FAILED
        raise
    except Exception as error:
        context.outcome, context.error = ConsumeOutcome.EXCEPTION, error
        raise
    finally:
        context.seconds = time.monotonic() - begin
        if context.error is None and context.seconds >= timeout_s:
            context.outcome = ConsumeOutcome.TIMEOUT
        call_after((hook.after_consume for hook in reversed(hooks)), context)


def _failed(unit: Any, error: BaseException) -> Failure:
    return Failure(_messages(unit), 0, f"{type(error).__name__}: {error}")


def _later(unit: Any) -> Failure:
    return Failure(_messages(unit), 0, ConsumeResult.LATER.value)


def _refused(unit: Any, result: object) -> Failure | None:
    """The failure that a listener's result stands for; None for a success."""
    return None if _is_success(result) else _later(unit)


def _raised(unit: Any, error: BaseException) -> Failure:
    """The failure for what a listener raised. Logs an error that is not a wish for a retry."""
    if isinstance(error, ReconsumeLaterError):
        return _wished(unit, error)
    log.exception("listener failed", messages=unit)
    return _failed(unit, error)


def _wished(unit: Any, wish: ReconsumeLaterError) -> Failure:
    messages = _messages(unit)
    if wish.messages is not None:
        messages = [message for message in messages if message in wish.messages]
    return Failure(messages or _messages(unit), wish.delay_level, ConsumeResult.LATER.value)


def _outcome(result: Result) -> ConsumeOutcome:
    return ConsumeOutcome.SUCCESS if _is_success(result) else ConsumeOutcome.FAILED


def _is_success(result: object) -> bool:
    return result is None or result is ConsumeResult.SUCCESS


def _messages(unit: Any) -> list[ReceivedMessage]:
    return unit if isinstance(unit, list) else [unit]


def _is_async(call: Callable[[Any], Any]) -> bool:
    inner = call
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    if inspect.iscoroutinefunction(inner):
        return True
    return inspect.iscoroutinefunction(type(inner).__call__)
