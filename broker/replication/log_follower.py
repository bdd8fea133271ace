"""A slave's connection to its master (RocketMQ: HAService.HAClient)."""

import select
import socket
import time
from collections.abc import Callable

from congreve.broker.replication.frames import FRAME_MAX, HEADER, REPORT
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.replication.log_receiver import LogReceiver
from congreve.engine.store import MessageStore
from congreve.remoting.transport.event_fd import EventFd

READ_MAX = 256 << 10
"""Bytes of one read; the records in them become visible together."""
DISK_PAUSE_S = 0.001
"""The pause when the disk is so far behind that no memory is free for more."""
UNREPORTED_MAX = 1 << 20
"""Bytes after which the slave reports although more have arrived."""


class LogFollower:
    """Receives a master's log on the thread that calls follow().

    It reports what it has: with SYNC_FLUSH what is on its disk, else what is in its log. It calls
    `arrived` with the watched queues that got entries, and sends what `login` returns first. A
    master that is silent for haHousekeepingInterval is left (4.9.4's slave never notices one that
    has died).
    (RocketMQ: HAService.HAClient.)
    """

    header_size = HEADER.size
    """Bytes of a frame before those of the log."""

    def __init__(
        self,
        store: MessageStore,
        settings: ReplicationSettings,
        arrived: Callable[[set[ConsumeQueue]], None],
        login: Callable[[], bytes] = bytes,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.receiver = LogReceiver(store)
        self.heard_at = monotonic()
        """When the master was heard last, by the monotonic clock."""
        self._store = store
        self._settings = settings
        self._arrived = arrived
        self._login = login
        self._now = monotonic
        self._wake = EventFd()
        self._stopping = False
        self._header = bytearray(self.header_size)
        self._header_bytes = 0
        self._left = 0  # bytes of the frame that have not arrived
        self._reported = -1
        self._reported_at = 0.0

    def stop(self) -> None:
        """End follow() soon; any thread may call it."""
        self._stopping = True
        self._wake.signal()

    def close(self) -> None:
        """Free the eventfd, after follow() has ended."""
        self._wake.close()

    def follow(self, master: socket.socket, start: int) -> None:
        """Report `start`, then take the log until the connection ends or stop().

        Raises OSError for a lost connection, ReplicationError for a master that is silent or breaks
        the protocol, StoreError and BackendError if this store cannot take what arrives.
        """
        master.setblocking(False)
        self.heard_at = self._now()
        self._header_bytes = self._left = 0
        if start > self.receiver.received:
            self.receiver.assume_zeros(start - self.receiver.received)
        events = select.poll()
        events.register(master, select.POLLIN)
        events.register(self._wake, select.POLLIN)
        self._store.backend.follow(self._wake.descriptor)
        try:
            master.sendall(self._login())
            self._report(master, start)
            while not self._stopping:
                self._turn(master, events)
        finally:
            self._store.backend.follow(-1)
            self.receiver.drop_partial()

    def _turn(self, master: socket.socket, events: select.poll) -> None:
        ready = [descriptor for descriptor, _ in events.poll(self._pause_ms())]
        if self._wake.descriptor in ready:
            self._wake.clear()
        if master.fileno() in ready:
            self._read_all(master)
            self._make_durable()
        now = self._now()
        there = self._have()
        if there > self._reported or now - self._reported_at >= self._settings.heartbeat_s:
            self._report(master, there)
        if now - self.heard_at > self._settings.silence_s:
            raise ReplicationError(f"the master was silent for {self._settings.silence_s:g} s")

    def _pause_ms(self) -> float:
        until = min(
            self._reported_at + self._settings.heartbeat_s,
            self.heard_at + self._settings.silence_s,
        )
        return max(until - self._now(), 0) * 1000 + 1

    def _read_all(self, master: socket.socket) -> None:
        """Read what has arrived, but report now and then."""
        before = self.receiver.received
        while self.receiver.received - before < UNREPORTED_MAX and not self._stopping:
            try:
                if not (self._read_header(master) if self._left == 0 else self._read_log(master)):
                    return
            except BlockingIOError:
                return

    def _read_header(self, master: socket.socket) -> bool:
        got = master.recv_into(memoryview(self._header)[self._header_bytes :])
        if not got:
            raise ReplicationError("the master has closed the connection")
        self.heard_at = self._now()
        self._header_bytes += got
        if self._header_bytes < self.header_size:
            return True
        self._header_bytes = 0
        offset, size = self._take_header(self._header)
        if offset != self.receiver.received:
            raise ReplicationError(
                f"the master sends its log from {offset}, but this slave needs it from "
                f"{self.receiver.received}"
            )
        if not 0 <= size <= FRAME_MAX:
            raise ReplicationError(f"a frame of {size} bytes: 0 to {FRAME_MAX} are possible")
        self._left = size
        return True

    def _take_header(self, header: bytearray) -> tuple[int, int]:
        """The physical offset and the size of the bytes that follow."""
        offset, size = HEADER.unpack(header)
        return offset, size

    def _read_log(self, master: socket.socket) -> bool:
        room = self.receiver.room(min(self._left, READ_MAX))
        if not room:
            time.sleep(DISK_PAUSE_S)
            return False
        got = master.recv_into(room)
        if not got:
            raise ReplicationError("the master has closed the connection")
        self.heard_at = self._now()
        self._left -= got
        arrived = self.receiver.take(got)
        self._store.after_append(self._store.log.max_offset, flush=False)
        if arrived:
            self._arrived(arrived)
        return True

    def _make_durable(self) -> None:
        if self._settings.sync_flush:
            # A single write is quicker here than on another thread; several go on beside this one.
            self._store.backend.write_through(self._store.log.max_offset)

    def _have(self) -> int:
        if self._settings.sync_flush:
            return min(self._store.backend.durable_offset, self._store.log.max_offset)
        return self._store.log.max_offset

    def _report_frame(self, offset: int) -> bytes:
        return REPORT.pack(offset)

    def _report(self, master: socket.socket, offset: int) -> None:
        try:
            master.sendall(self._report_frame(offset))
        except BlockingIOError:
            return  # the master does not read; the next turn tries again
        self._reported = max(offset, self._store.log.min_offset)
        self._reported_at = self._now()
