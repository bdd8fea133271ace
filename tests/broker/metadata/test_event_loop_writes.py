"""How long writing a big broker's state may hold the event loop or the GIL."""

import asyncio
import sys
import time
from collections.abc import Callable
from statistics import median
from types import FrameType
from typing import Any

import pytest
from harness.slowness import limit_s

from congreve.broker.broker import Broker
from congreve.broker.metadata.state_writer import Changes
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand

from ..big_broker import BigBroker, Member
from ..test_event_loop import COMMON, LIMIT_S

CREATED, IN_FLIGHT, COMMITS, ROUNDS = 30, 100, 2_000, 5


class Steps:
    """CPU time of the longest line of Python code: no other thread runs Python code during a
    line, unless a call in it releases the GIL."""

    def __init__(self) -> None:
        self.longest_s, self.place = 0.0, ""
        self._last = 0.0

    def run(self, work: Callable[..., object], *values: object) -> None:
        """Run `work` in this thread."""
        self._last = time.thread_time()
        sys.settrace(self._line_ended)
        try:
            work(*values)
        finally:
            sys.settrace(None)

    def _line_ended(self, frame: FrameType, event: str, value: object) -> Any:
        frame.f_trace_opcodes = True
        took = time.thread_time() - self._last
        if took > self.longest_s:
            self.longest_s = took
            self.place = f"before {frame.f_code.co_filename}:{frame.f_lineno}"
        self._last = time.thread_time()
        return self._line_ended


async def asked(broker: Broker, code: int, **fields: object) -> None:
    texts = {key: str(value) for key, value in {**COMMON, **fields}.items()}
    answer = broker.ports.server.handlers[code](
        RemotingCommand(code=code, ext_fields=texts), Member(65_000)
    )
    if asyncio.iscoroutine(answer):
        answer = await asyncio.create_task(answer)
    assert answer.code == 0, answer.remark


def test_creating_topics_one_by_one_blocks_the_loop_for_less_than_5_ms(
    big: BigBroker, callback_times: Any
) -> None:
    longest: list[float] = []

    async def create() -> None:
        for number in range(CREATED):
            callback_times.reset()
            await asked(big.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=f"New-{number}")
            longest.append(callback_times.longest_s)

    with callback_times.measured():
        big.run(create())
    assert median(longest) < limit_s(LIMIT_S), callback_times.place


def test_a_hundred_commits_in_flight_block_the_loop_for_less_than_5_ms(
    big: BigBroker, callback_times: Any
) -> None:
    longest: list[float] = []

    async def commit() -> None:
        for first in range(0, COMMITS, IN_FLIGHT):
            callback_times.reset()
            await asyncio.gather(
                *(
                    asked(
                        *(big.broker, RequestCode.UPDATE_CONSUMER_OFFSET),
                        consumerGroup=f"G-{number % 1_000}",
                        commitOffset=number,
                    )
                    for number in range(first, first + IN_FLIGHT)
                )
            )
            longest.append(callback_times.longest_s)

    with callback_times.measured():
        big.run(commit())
    assert median(longest) < limit_s(LIMIT_S), callback_times.place


def test_no_step_of_writing_state_holds_the_gil_for_5_ms(
    big: BigBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    managers = big.broker.managers
    found: dict[str, list[Steps]] = {file.path: [] for file in managers.files.all}

    def traced(file: Changes[Any]) -> Callable[[object], None]:
        write = file._write

        def run(taken: object) -> None:
            steps = Steps()
            found[file.path].append(steps)
            steps.run(write, taken)

        return run

    async def change() -> None:
        for file in managers.files.all:
            await file.write()  # changed entries are encoded a few at a time
            monkeypatch.setattr(file, "_write", traced(file))
        for number in range(ROUNDS):
            managers.metadata.topics.create_internal(f"New-{number}", 8)
            managers.metadata.groups.find(f"New-{number}")
            managers.metadata.offsets.note("G-0", "T-50", 0, number)
            managers.metadata.offsets.acknowledge("G-0", "T-50", 0)
            managers.metadata.deleted_topics.end([f"Gone-{number}"], 1)
            for file in managers.files.all:
                await file.write()

    big.run(change())
    for path, writes in found.items():
        shortest = min(writes, key=lambda steps: steps.longest_s)
        assert len(writes) >= ROUNDS, path
        assert shortest.longest_s < limit_s(LIMIT_S), (
            f"{path}: {shortest.longest_s} s {shortest.place}"
        )
