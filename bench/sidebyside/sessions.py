"""The measured sessions: the cases that one broker runs from its start to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load

from . import cases, process, storms
from .brokers import running
from .cases import Size
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


def connections(session: Session) -> None:
    """Sends over many connections, each beside a server that only answers."""
    session.heat()
    for name, load in cases.CONNECTIONS.items():
        if session.broker.kind == "congreve":
            session.send_to_sink(name, load)
        session.send(name, load)


def beside(session: Session) -> None:
    """One send at a time, alone and beside other work."""
    cold = session.fill_cold(cases.BEHIND)
    session.heat()
    session.heat_by(cases.PROBE)
    broker = session.broker
    if broker.kind == "congreve":
        session.send_to_sink(cases.PROBE_ALONE, cases.PROBE)
    session.send(cases.PROBE_ALONE, cases.PROBE)
    session.beside("probe-beside-behind", lambda: generator.run(broker.port, cold))
    session.create_topics(cases.CREATED)
    for name, calls in (
        ("probe-beside-all-topics", storms.requests(broker, storms.GET_ALL_TOPIC_CONFIG)),
        ("probe-beside-runtime-info", storms.requests(broker, storms.GET_BROKER_RUNTIME_INFO)),
        ("probe-beside-changes", storms.changes(broker)),
        ("probe-beside-heartbeats", storms.heartbeats(broker, session.size.storm_clients)),
        ("probe-beside-store-read", storms.store_reads(broker, cold)),
    ):
        with calls as call:
            session.beside(name, call)
    session.send(cases.PROBE_ALONE, cases.PROBE, topic="probe-alone-again")


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
    "connections": (connections, "ASYNC_FLUSH"),
    "beside": (beside, "ASYNC_FLUSH"),
}


def play(
    name: str,
    kind: str,
    size: Size,
    number: int,
    folder: Path,
    tell: Tell,
    own: dict[str, str] | None = None,
) -> Iterator[CaseResult]:
    """Run one session at a new broker of that kind; `own` are settings of a Congreve broker."""
    steps, flush = SESSIONS[name]
    # Touching 4 GiB of heap takes the reference a second that a restart need not pay.
    with (
        process.full_page_cache(folder) if size.fill_page_cache else nullcontext(),
        running(kind, folder / kind, flush=flush, pretouch=name != "restart", own=own) as broker,
    ):
        session = Session(broker, size, number, tell)
        steps(session)
        yield from session.results
