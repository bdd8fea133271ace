"""Clients that send random requests until their broker ends."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

from wholebroker.administration import NameServerRequests, StateRequests
from wholebroker.history import History
from wholebroker.messages import MessageRequests, register_producer, serve
from wholebroker.session import Session

CLIENTS = 4  # as many as there are settings to change
OWN_TOPICS = 2


class Clients:
    """Some connections to a broker and its name server, each with a thread."""

    def __init__(self, history: History, broker: str, namesrv: str, seed: int) -> None:
        self._history = history
        self._broker = broker
        self._namesrv = namesrv
        self._seed = seed
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=work, args=(str(number),))
            for number in range(CLIENTS)
            for work in (self._use_broker, self._use_namesrv)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for the clients: each ends after its current request, or with its server."""
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self._history.faults.append("a client does not end")

    def _use_broker(self, name: str) -> None:
        chance = random.Random(f"{self._seed}-{name}")
        topics = [f"Own-{name}-{at}" for at in range(OWN_TOPICS)]

        def work(session: Session) -> None:
            register_producer(session, name)
            self._repeat(chance, broker_requests(session, self._history, chance, name, topics))

        self._until_gone(self._broker, work)

    def _use_namesrv(self, name: str) -> None:
        chance = random.Random(f"{self._seed}-{name}-namesrv")

        def work(session: Session) -> None:
            requests = NameServerRequests(session, self._history, chance, name)
            self._repeat(chance, [requests.change])

        self._until_gone(self._namesrv, work)

    def _repeat(self, chance: random.Random, requests: list[Callable[[], None]]) -> None:
        while not self._ending.is_set():
            chance.choice(requests)()

    def _until_gone(self, address: str, work: Callable[[Session], None]) -> None:
        try:
            with Session(address, self._history, partial(serve, self._history)) as session:
                work(session)
        except OSError:
            return
        except Exception as error:
            self._history.faults.append(f"a client cannot go on: {error!r}")
            raise


def broker_requests(
    session: Session, history: History, chance: random.Random, name: str, topics: list[str]
) -> list[Callable[[], None]]:
    """All kinds of requests; frequent ones are listed several times."""
    messages = MessageRequests(session, history, chance, name, topics)
    state = StateRequests(session, history, chance, name, topics)
    often = [
        messages.send,
        messages.send_many,
        messages.send_batch,
        messages.send_by_level,
        messages.send_by_time,
        messages.transact,
        messages.pull,
        state.update_offset,
    ]
    return [
        *often,
        *often,
        messages.send_old,
        messages.send_oneway,
        messages.send_nowhere,
        messages.send_to_new_topic,
        messages.send_to_new_topic,
        messages.send_to_own_topic,
        messages.send_to_own_topic,
        messages.send_back,
        messages.send_back,
        messages.reply,
        messages.query,
        state.update_topic,
        state.update_hostile_topic,
        state.delete_topic,
        state.update_group,
        state.update_hostile_group,
        state.delete_group,
        state.join,
        state.join_with_filter,
        state.update_hostile_offset,
        state.clone_offsets,
        state.reset_offsets,
        state.lock,
        state.update_config,
    ]
