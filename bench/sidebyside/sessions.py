"""The measured sessions: the cases that one broker runs from its start to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from . import cases, process
from .brokers import running
from .cases import Size
from .generator import Load
from .results import CaseResult
from .session import Session, Tell


def hot(session: Session) -> None:
    """ASYNC_FLUSH: sends, pulls, memory, many queues."""
    size = session.size
    session.memory("memory-idle")
    session.heat()
    for name, load in cases.ASYNC_SENDS.items():
        session.send(name, load)
    for name, load in cases.PULLS.items():
        session.pull(name, load)
    session.fill("memory", max(32, size.memory_messages - session.stored), 128)
    session.memory("memory-after-messages")
    session.send(cases.ONE_QUEUE, Load(queues=1))
    session.send(cases.MANY_QUEUES, cases.many_queues(size), queues_exist=True)


def wait(session: Session) -> None:
    """Waiting pulls among idle connections."""
    session.wait(cases.WAITING)


def push(session: Session) -> None:
    """Messages to a push listener, one at a time."""
    session.push(cases.PUSHED)


def filters(session: Session) -> None:
    """Pulls through a SQL92 filter."""
    session.heat()
    session.pull("pull-32x128B-sql", cases.FILTERED_PULL)


def sync(session: Session) -> None:
    """SYNC_FLUSH, beside the raw disk."""
    session.heat()
    session.disk(cases.RAW_ALONE, 4 * cases.KIB, 1)
    session.disk(cases.RAW_TOGETHER, 64 * cases.KIB, 4)
    for name, load in cases.SYNC_SENDS.items():
        session.send(name, load)


def unsynced(session: Session) -> None:
    """ASYNC_FLUSH under the load of SYNC_FLUSH."""
    session.heat()
    session.send(cases.ASYNC_64, cases.SYNC_SENDS["sync-4x64"])


def cold(session: Session) -> None:
    """ASYNC_FLUSH beside a reader of old messages."""
    session.heat()
    session.cold_read(cases.ASYNC_SENDS["send-128B"])


def restart(session: Session) -> None:
    """Restart after kill -9 with a store of some size."""
    session.fill("store", session.size.restart_bytes // 1250, cases.KIB)
    session.restart("ready-after-kill")


def delay(session: Session) -> None:
    """Delivery of delayed messages that are all due."""
    session.delay("delay-level-1")


def timers(session: Session) -> None:
    """Messages with individual delivery times, which RocketMQ 4.9.4 does not have."""
    if session.broker.kind == "congreve":
        session.pending(cases.PENDING)
        session.punctual(cases.PUNCTUAL)


def transactions(session: Session) -> None:
    """Half messages and their commits, 64 transactions in flight."""
    session.heat()
    session.heat_by(cases.TRANSACTIONS)
    session.send("transactions", cases.TRANSACTIONS)


SESSIONS: dict[str, tuple[Callable[[Session], None], str]] = {
    "hot": (hot, "ASYNC_FLUSH"),
    "restart": (restart, "ASYNC_FLUSH"),
    "wait": (wait, "ASYNC_FLUSH"),
    "filter": (filters, "ASYNC_FLUSH"),
    "push": (push, "ASYNC_FLUSH"),
    "delay": (delay, "ASYNC_FLUSH"),
    "timers": (timers, "ASYNC_FLUSH"),
    "transactions": (transactions, "ASYNC_FLUSH"),
    "async": (unsynced, "ASYNC_FLUSH"),
    "sync": (sync, "SYNC_FLUSH"),
    "cold": (cold, "ASYNC_FLUSH"),
}


def play(
    name: str, kind: str, size: Size, number: int, folder: Path, tell: Tell
) -> Iterator[CaseResult]:
    """Run one session at a new broker of that kind."""
    steps, flush = SESSIONS[name]
    # Touching 4 GiB of heap takes the reference a second that a restart need not pay.
    with (
        process.full_page_cache(folder) if size.fill_page_cache else nullcontext(),
        running(kind, folder / kind, flush=flush, pretouch=name != "restart") as broker,
    ):
        session = Session(broker, size, number, tell)
        steps(session)
        yield from session.results
