"""A log that heals: what is damaged here is fetched from a broker that has a copy of the log."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from congreve.base.errors import CongreveError
from congreve.base.limited_log import LimitedLog
from congreve.broker.ha_frames import REPAIR, REPAIR_ACCEPTED
from congreve.broker.repair.frames import (
    DAMAGED,
    NOT_THERE,
    OTHER_LOG,
    WHOLE,
    Fetch,
    RepairFrameError,
)
from congreve.broker.repair.peer import Peer, Records
from congreve.engine.scrub.damage import Damage
from congreve.engine.store import MessageStore
from congreve.remoting.loop.background import BackgroundJobs, BackgroundTask
from congreve.remoting.loop.receiving import receive

PEERS_MAX = 64
"""Connections for repairs at most."""
PIECE = 1 << 20
"""About the most bytes of one answer; a longer record is sent alone."""
RETRY_S = 5.0
"""How often damage without a repair so far is tried again, in seconds."""
PULL_S = 3.0
"""How long a pull waits for the repair of a record before it passes it, in seconds."""
EXPECTED_S = 10.0
"""How long after a start pulls wait for another broker to be connected, in seconds."""
GREETING_S = 10.0
"""The time that a connection's first bytes may take, in seconds."""
WHY = {
    DAMAGED: "the records are damaged there, too",
    OTHER_LOG: "its log is not a copy of this one",
    NOT_THERE: "it does not have the records, or they are not confirmed and on disk",
}

logger = logging.getLogger(__name__)


class LogRepair:
    """Repairs the log of one broker while it serves, and gives other brokers what they lack.

    The damage comes from the store: recovery, pulls and the scrub find it. A master asks its
    slaves, a slave its master. Only what is on disk and confirmed is asked for and given. One event
    loop owns it, unless a method says otherwise. (RocketMQ: none.)
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        has_copies: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`has_copies`: another broker with this log will be connected soon after a start."""
        self.refusal = ""
        """Why the master of this slave cannot be asked; empty while it can, or there is none."""
        self._store = store
        self._has_copies = has_copies
        self._now = monotonic
        self._expects_until = 0.0
        self._peers: list[Peer] = []
        self._serving = BackgroundJobs("a connection for repairs", logger)
        self._changed = asyncio.Event()
        self._work: BackgroundTask | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: set[Damage] = set()
        self._passed: set[int] = set()  # where pulls wait no longer
        self._shared: set[int] = set()  # where damage begins that a peer has, too
        self._log = LimitedLog(logger)

    def start(self) -> None:
        """Repair what is found, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._expects_until = self._now() + EXPECTED_S if self._has_copies else 0.0
        self._store.scrub.damages.follow(self._note)
        self._work = BackgroundTask("the repair of the log", self._run, logger)
        self._work.start()

    async def stop(self) -> None:
        """End all connections; idempotent."""
        self._loop = None
        work, self._work = self._work, None
        if work is not None:
            await work.stop()
        self._serving.cancel()
        await self._serving.wait()

    @property
    def peers(self) -> str:
        """The brokers that can be asked now, or why there are none."""
        refusal = f" ({self.refusal})" if self.refusal else ""
        return "; ".join(peer.name for peer in self._peers) or f"none{refusal}"

    def await_record(self, place: int, size: int) -> None:
        """Wait, PULL_S at most, until the record of this place and size is not damaged.

        It blocks: for a thread. It returns at once for damage that was waited for before, and while
        there is no broker to ask.
        """
        scrub = self._store.scrub
        if len(self._store.log.read(place) or b"") == size:
            return
        if scrub.damages.at(place) is None:
            scrub.look_at(place)
        damage = scrub.damages.at(place)
        if damage is None or self._loop is None or damage.begin in self._passed:
            return
        if not self._peers and self._now() >= self._expects_until:
            return
        self._note()
        if not scrub.damages.wait_without(place, PULL_S):
            self._passed.add(damage.begin)

    # --- connections

    def accept(self, peer: socket.socket, received: bytes, name: str) -> None:
        """Serve a connection whose other end has logged in; `received` came behind its login."""
        if self._loop is None or len(self._serving) >= PEERS_MAX:
            peer.close()
            return
        self._serving.begin(self._serve(peer, received, name))

    async def _serve(self, peer: socket.socket, received: bytes, name: str) -> None:
        loop = asyncio.get_running_loop()
        with peer:
            try:
                async with asyncio.timeout(GREETING_S):
                    try:
                        received = await receive(peer, len(REPAIR), received, closed=EOFError())
                    except EOFError:
                        return
                    if received != REPAIR:
                        raise RepairFrameError(f"it begins with {received[: len(REPAIR)]!r}")
                    await loop.sock_sendall(peer, REPAIR_ACCEPTED)
                await self.serve(peer, name)
            except (OSError, EOFError, RepairFrameError) as error:
                self._log.warning("the connection for repairs of %s ended: %s", name, error)

    async def serve(self, peer: socket.socket, name: str) -> None:
        """Ask and answer on a connection whose both ends have agreed to, until it ends.

        Raises OSError, EOFError, RepairFrameError.
        """
        other = await Peer.of(peer, name, self.answer)
        self._peers.append(other)
        self._passed.clear()
        self._changed.set()
        try:
            await other.run()
        finally:
            self._peers.remove(other)

    def answer(self, request: Fetch) -> Records:
        """What another broker gets; for any thread."""
        store, begin = self._store, request.begin
        mine = store.log.named_record(request.beside.record)
        if not request.beside.is_same(mine):
            return Records(OTHER_LOG, begin)
        examiner = store.scrub.examiner
        try:
            data = examiner.whole_records(begin, request.end, PIECE)
            end = None if data else examiner.end_of_damage_at(begin, request.end)
        except OSError as error:
            self._log.warning("records for another broker cannot be read: %s", error)
            data, end = b"", None
        if data:
            return Records(WHOLE, begin + len(data), data)
        return Records(NOT_THERE, begin) if end is None else Records(DAMAGED, end)

    # --- repairs

    async def look(self) -> int | None:
        """Where the first damage begins that another broker may still repair; None without any.

        A broker that has been asked for it and has the same damage cannot. What the start has found
        counts, as far as it is on disk. Raises OSError.
        """
        scrub, backend = self._store.scrub, self._store.backend
        if scrub.passed is not None:
            if backend.durable_offset < self._store.log.max_offset:
                backend.request(self._store.log.max_offset)  # no message makes it durable
            await asyncio.to_thread(scrub.look_first)
        begins = [each.begin for each in scrub.damages.open if each.begin not in self._shared]
        passed = scrub.passed
        return min([*begins[:1], *([] if passed is None else [passed])], default=None)

    def _note(self) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._changed.set)

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._store.scrub.damages.open else None):
                    await self._changed.wait()
            self._changed.clear()
            for damage in self._store.scrub.damages.open:
                await self._repair(damage)

    async def _repair(self, damage: Damage) -> None:
        why = self.refusal or "no other broker with this log is connected"
        for peer in list(self._peers):
            try:
                left, why = await self._repair_from(peer, damage)
            except (OSError, CongreveError) as error:
                why = f"{peer.name}: {error or type(error).__name__}"
                continue
            if left is None:
                self._told.discard(damage)
                self._shared.discard(damage.begin)
                return
            damage = left
        if self._peers:
            self._passed.add(damage.begin)
        if damage not in self._told:
            self._told.add(damage)
            logger.error("%s are not repaired: %s", damage, why)

    async def _repair_from(self, peer: Peer, damage: Damage) -> tuple[Damage | None, str]:
        """What is left of the damage, and why; None if nothing is."""
        store, known = self._store, damage
        beside = damage.beside
        if beside is None:
            return damage, "this log has no whole record to be recognised by"
        if damage.end > store.scrub.examiner.end:
            return damage, "the end of the log is not confirmed and on disk yet"
        while True:
            got = await peer.fetch(Fetch(damage.begin, damage.end, beside))
            if got.outcome == DAMAGED:
                if damage.begin < got.end < damage.end:
                    damage, _ = store.scrub.damages.split(damage, got.end)
                    self._changed.set()
                self._shared.add(damage.begin)
            if not got.data:
                return damage, f"{peer.name}: {WHY.get(got.outcome, 'it sends nothing')}"
            end = await asyncio.to_thread(store.scrub.records.write, damage, got.data)
            if end == damage.end:
                break
            damage = store.scrub.damages.narrow(damage, end)
        store.scrub.damages.remove(damage, repaired=True)
        logger.warning("%s are repaired, from the log of %s", known, peer.name)
        return None, ""
