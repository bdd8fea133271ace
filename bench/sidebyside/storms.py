"""Storms: other work at a broker, in a loop, while a probe sends one message at a time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count, cycle

from harness.wire import HEART_BEAT, Wire, heartbeat

import congreve
from congreve.console.loadgen.generator import Load

from .brokers import Running, create_topic, topic_names

GET_ALL_TOPIC_CONFIG = 21
GET_BROKER_RUNTIME_INFO = 28
CHANGED_TOPICS = 100
CLIENTS_A_GROUP = 10
Call = Callable[[], object]


class StormError(Exception):
    """A request of a storm failed; the text has its answer."""


@contextmanager
def storm(call: Call) -> Iterator[list[float]]:
    """Makes one call after the other on a thread of its own while the block runs.

    The list gets the seconds that each call took. Raises what a call raised.
    """
    ending = threading.Event()
    seconds: list[float] = []

    def run() -> None:
        while not ending.is_set():
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)

    with ThreadPoolExecutor(max_workers=1) as thread:
        running = thread.submit(run)
        try:
            yield seconds
        finally:
            ending.set()
        running.result()


def ask(wire: Wire, code: int, fields: dict[str, str], body: bytes = b"") -> None:
    """Send a request and read its answer. Raises StormError for an error."""
    answer = wire.call(code, fields, body)
    if answer.code != 0:
        raise StormError(f"request {code}: {answer.code} {answer.remark}")


@contextmanager
def requests(broker: Running, code: int) -> Iterator[Call]:
    """The same request without fields each time."""
    with Wire(broker.server.address) as wire:
        yield lambda: ask(wire, code, {})


@contextmanager
def changes(broker: Running) -> Iterator[Call]:
    """UPDATE_AND_CREATE_TOPIC, each time with other settings than before."""
    numbers = count()

    def change() -> None:
        turn, number = divmod(next(numbers), CHANGED_TOPICS)
        create_topic(wire, f"changed-{number}", 4 + turn % 2)

    with Wire(broker.server.address) as wire:
        yield change


@contextmanager
def heartbeats(broker: Running, clients: int) -> Iterator[Call]:
    """Heartbeats of that many clients in turn, each on a connection of its own; all have sent
    their first one. Ten clients are a group."""
    broker.create_topics(Load(topic="heard"))
    with ExitStack() as stack:
        waiting = []
        for number in range(clients):
            group = f"hearts-{number // CLIENTS_A_GROUP}"
            client = json.loads(heartbeat("heard", group)) | {"clientID": f"client-{number}"}
            wire = stack.enter_context(Wire(broker.server.address))
            waiting.append((wire, json.dumps(client).encode()))
            ask(wire, HEART_BEAT, {}, waiting[-1][1])
        turns = cycle(waiting)

        def beat() -> None:
            wire, body = next(turns)
            ask(wire, HEART_BEAT, {}, body)

        yield beat


@contextmanager
def store_reads(broker: Running, load: Load) -> Iterator[Call]:
    """The load's messages as Arrow batches from the running broker's files, batch by batch."""
    store = congreve.open_store(broker.server.store)
    batches = (batch for name in cycle(topic_names(load)) for batch in store.arrow_batches(name))
    next(batches)  # loads what the reads need
    yield lambda: next(batches)
