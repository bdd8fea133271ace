"""Messages that stay hidden as long as their push consumer is there (RocketMQ 5:
DefaultReceiptHandleManager)."""

import heapq
import itertools
from collections.abc import Callable, Iterable

import msgspec

from congreve.base.clock import Clock
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.pop.service import Pops
from congreve.engine.pop.in_flight import PopWindow
from congreve.engine.pop.results import Answer
from congreve.records.message.pop_handle import PopHandle
from congreve.remoting.loop.wake_up_timer import WakeUpTimer
from congreve.remoting.wire.fast_headers import INVISIBLE_MAX_MS

RENEWED_MS = 60_000
"""How long messages are hidden that a client asks to renew, and how much longer by a renewal."""
RENEWED_MAX_MS = 3 * 3600 * 1000
"""How long after their pop messages are renewed."""
AHEAD_MS = 10_000
"""How long before its time is over a message is renewed."""
FIRST_LOOK_MS = 5_000
"""When to forget those that are acknowledged by then: most are."""
RETURN_MS = 15_000
"""How long a client may be without Telemetry and heartbeats. Most of the official ones open their
Telemetry again after a second; those for Go and Python only to send their settings, each five
minutes, but their heartbeats come each ten seconds."""
HEARD_MS = 30_000
"""How long after a heartbeat a client without Telemetry counts as there."""
LOST_MS = 1_000
"""When messages come again whose client is gone."""
INVISIBLE_MIN_MS = 10_000
"""Of what a client asks for (RocketMQ 5: GrpcValidator)."""
ROUND = 200
"""Leases of one round; then other work of the event loop can run."""


class _Lease(msgspec.Struct, eq=False):
    """What one pop took from a queue: `count` messages from offset `first` on.

    (RocketMQ 5: ReceiptHandleGroup.)
    """

    client_id: str
    window: PopWindow
    pop_ms: int
    invisible_ms: int
    first: int
    last: int
    count: int = 1
    is_lost: bool = False


class Renewals:
    """Renews what clients hold whose Telemetry `is_open`, or that were heard lately; one event loop
    owns it.

    The receipt handle stays the same: a renewal changes only when the message is due. After a kill
    of the broker the last renewal counts. (RocketMQ 5: DefaultReceiptHandleManager.)
    """

    def __init__(self, pops: Pops, clock: Clock, is_open: Callable[[str], bool]) -> None:
        self._pops = pops
        self._clock = clock
        self._is_open = is_open
        self.renewed_ms = RENEWED_MS
        self._of_client: dict[str, set[_Lease]] = {}
        self._heard_ms: dict[str, int] = {}
        """The latest heartbeats of those that hold something, without Telemetry."""
        self._due: list[tuple[int, int, _Lease | str]] = []
        """A heap: when to look at a lease, or for a client."""
        self._numbers = itertools.count()
        self._timer = WakeUpTimer(self._look)

    def __len__(self) -> int:
        return sum(map(len, self._of_client.values()))

    def stop(self) -> None:
        """Renew nothing more."""
        self._timer.stop()

    def hold(self, client_id: str, group: str, topic: str, handles: Iterable[PopHandle]) -> None:
        """Renew what a client got by one pop, until it is settled or changed."""
        leases: dict[tuple[int, int], _Lease] = {}
        for handle in handles:
            lease = leases.get((handle.kind, handle.queue_id))
            if lease is not None:
                lease.first, lease.last = (
                    min(lease.first, handle.offset),
                    max(lease.last, handle.offset),
                )
                lease.count += 1
                continue
            window = self._pops.in_flight.find(
                group, handle.kind.stored_topic(group, topic), handle.queue_id
            )
            if window is not None:
                leases[handle.kind, handle.queue_id] = _Lease(
                    *(client_id, window, handle.pop_ms, handle.invisible_ms),
                    *(handle.offset, handle.offset),
                )
        for lease in leases.values():
            self._of_client.setdefault(client_id, set()).add(lease)
            ahead = min(FIRST_LOOK_MS, self.renewed_ms // 2)
            self._look_at(lease.pop_ms + ahead, lease)

    def heard(self, client_id: str) -> None:
        """A client has sent a heartbeat; while it has its Telemetry, that tells more."""
        if client_id in self._of_client and not self._is_open(client_id):
            self._heard_ms[client_id] = self._clock.now()

    def telemetry_ended(self, client_id: str) -> None:
        """The client is gone, unless it opens its Telemetry again soon."""
        if client_id in self._of_client:
            self._look_at(self._clock.now() + RETURN_MS, client_id)

    def client_gone(self, client_id: str) -> None:
        """Let what the client holds come again."""
        self._heard_ms.pop(client_id, None)
        for lease in self._of_client.get(client_id, ()):
            lease.is_lost = True
            self._look_at(0, lease)

    def _look_at(self, when_ms: int, what: _Lease | str) -> None:
        heapq.heappush(self._due, (when_ms, next(self._numbers), what))
        self._timer.set(max(when_ms - self._clock.now(), 0) / 1000)

    def _look(self) -> None:
        now = self._clock.now()
        for _ in range(ROUND):
            if not self._due or self._due[0][0] > now:
                break
            _, _, what = heapq.heappop(self._due)
            if isinstance(what, str):
                if not self._is_there(what, now):
                    self.client_gone(what)
            elif what in self._of_client.get(what.client_id, ()):
                self._renew(what, now)
        if self._due:
            self._timer.set(max(self._due[0][0] - now, 0) / 1000)

    def _renew(self, lease: _Lease, now: int) -> None:
        offsets, ahead = self._out(lease), min(AHEAD_MS, self.renewed_ms // 2)
        due_ms = lease.pop_ms + lease.invisible_ms
        if lease.is_lost:
            self._extend(lease, offsets, now + LOST_MS)
            offsets = []
        elif due_ms - ahead <= now:
            if now - lease.pop_ms >= RENEWED_MAX_MS or not self._is_there(lease.client_id, now):
                offsets = []
            due_ms = now + self.renewed_ms
            offsets = self._extend(lease, offsets, due_ms)
        if offsets:
            self._look_at(due_ms - ahead, lease)
            return
        leases = self._of_client[lease.client_id]
        leases.remove(lease)
        if not leases:
            del self._of_client[lease.client_id]
            self._heard_ms.pop(lease.client_id, None)

    def _is_there(self, client_id: str, now: int) -> bool:
        return self._is_open(client_id) or now - self._heard_ms.get(client_id, 0) < HEARD_MS

    def _out(self, lease: _Lease) -> list[int]:
        """The offsets of those that are neither settled nor changed."""
        rows = lease.window.messages_out(lease.first, lease.count).tolist()
        return [
            offset
            for offset, *times, _ in rows
            if offset <= lease.last and times == [lease.pop_ms, lease.invisible_ms]
        ]

    def _extend(self, lease: _Lease, offsets: list[int], due_ms: int) -> list[int]:
        """Those that are due at that time now."""
        pop_ms, lease.invisible_ms = lease.pop_ms, max(due_ms - lease.pop_ms, 0)
        extend = lease.window.extend
        held = [
            offset
            for offset in offsets
            if extend(offset, pop_ms, pop_ms, lease.invisible_ms) is Answer.DONE
        ]
        if held:
            self._pops.changed()
        return held


def check_invisible(ms: int, least: int) -> None:
    """Raises CallRefusedError for an invisible time that no message can have."""
    if ms < least:
        why = f"the invisibleTime is too small. min is {least}"
        raise CallRefusedError(Code.ILLEGAL_INVISIBLE_TIME, why)
    if ms > INVISIBLE_MAX_MS:
        why = f"the invisibleTime is too large. max is {INVISIBLE_MAX_MS}"
        raise CallRefusedError(Code.ILLEGAL_INVISIBLE_TIME, why)
