"""What runs in a node and its clients, beside requests, goes on after an error."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import eventually

import congreve
from congreve.client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from congreve.client.observability.trace import TraceHook

#: Tasks that are no BackgroundTask: their loops catch each error, and have tests of their own.
LOOPS = {"ConcurrentConsumption._work", "GroupMember._pull_queue"}
#: The answer to a request, which may wait for messages.
ANSWERS = "Dispatcher._serve_later"
THREADS = {
    *("flush", "prefault", "lane", "namesrv"),  # compiled code without Python
    *("flush-timer", "housekeeping", "index", "mark", "scrub"),  # tests/engine/test_rounds.py
    *("metrics", "queuefiles", "asyncio", "prepare", "coldread"),  # a call each
}


def name_of(task: asyncio.Task[Any]) -> str:
    return task.get_coro().__qualname__  # type: ignore[union-attr]


async def test_each_task_goes_on_after_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, threads = asyncio.all_tasks(), set(threading.enumerate())
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with (
        congreve.serve(tmp_path, flushDiskType="ASYNC_FLUSH", metricsPort=0) as node,
        Producer(node.address, group="p", hooks=[TraceHook(node.address, "p")]) as producer,
        AsyncExitStack() as stack,
    ):
        await producer.send(Message(topic="T", body=b"0"))
        consumer = PushConsumer(
            node.address,
            group="c",
            topics={"T": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )
        await stack.enter_async_context(consumer)
        await eventually(lambda: seen == [b"0"])
        background: list[asyncio.Task[Any]] = []

        def all_known() -> bool:  # once calls that others wait for have ended
            tasks = [task for task in asyncio.all_tasks() - before if name_of(task) != ANSWERS]
            background[:] = [task for task in tasks if name_of(task) == "BackgroundTask._run"]
            return {name_of(task) for task in tasks if task not in background} <= LOOPS

        await eventually(all_known)
        started = {thread.name for thread in set(threading.enumerate()) - threads}
        assert {name.rstrip("-_0123456789") for name in started} <= THREADS
        assert len(background) > 10
        left = dict.fromkeys(background)

        def all_failed() -> bool:
            for task in list(left):
                if f"{task.get_name()} failed; it starts again" in caplog.text:
                    del left[task]
                elif (waiter := task._fut_waiter) is not None:  # type: ignore[attr-defined]
                    waiter.cancel()  # as a library might, which cancels what it awaits itself
            return not left

        await eventually(all_failed)
        assert not any(task.done() for task in background)
        await producer.send(Message(topic="T", body=b"1"))
        await eventually(lambda: seen == [b"0", b"1"])
