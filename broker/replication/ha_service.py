"""The HA port of a master (RocketMQ: HAService with AcceptSocketService)."""

import asyncio
import logging
import select
import socket
import threading
import time
from collections.abc import Callable

from congreve.broker.accounts.addresses import AddressPattern
from congreve.broker.errors import BrokerError
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import ReplicationError, SlaveConnection
from congreve.broker.replication.state import SlaveState
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.store import MessageStore
from congreve.limited_log import LimitedLog
from congreve.remoting.transport.event_fd import EventFd

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
BACKLOG = 16
TICK_S = 1.0
"""How often the thread looks for silent slaves and due heartbeats, in seconds."""


class HAService:
    """Listens for slaves, and sends them the log on a thread of its own.

    The thread starts with the first slave, so a broker without one only has a listening socket.
    With SYNC_FLUSH slaves get what is on this master's disk, so that none is ahead of a master that
    crashed. A slave whose address `haAllowedAddresses` does not match, that reports nothing for
    haHousekeepingInterval or an offset that cannot be true, is cut. With `check_login` slaves log
    in, unless haAllowedAddresses names addresses. `confirm` gets the offset that any slave has
    confirmed. (RocketMQ: HAService, HAConnection.)
    """

    def __init__(
        self,
        store: MessageStore,
        confirm: ConfirmOffset,
        settings: ReplicationSettings,
        check_login: Callable[[bytes], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._confirm = confirm
        self._settings = settings
        self._allowed = AddressPattern.parse(settings.allowed_addresses)
        # An address that is named needs no login: RocketMQ's slaves have none.
        self._check_login = check_login if self._allowed.everything else None
        self._now = monotonic
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # for _new
        self._new: list[socket.socket] = []
        self._slaves: dict[int, SlaveConnection] = {}
        self._wake: EventFd | None = None
        self._stopping = False
        self._refusals = LimitedLog(logger)
        self._next_tick = 0.0

    @property
    def port(self) -> int:
        """The port, 0 while it does not listen."""
        return 0 if self._listener is None else int(self._listener.getsockname()[1])

    def listen(self, host: str, port: int) -> None:
        """Listen on the running event loop. Raises BrokerError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise BrokerError(
                f"cannot listen on {host}:{port} for slaves: {error.strerror}; set haListenPort, "
                "or haListenPort=-1 for a broker without slaves"
            ) from error
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listener.fileno(), self._accept)

    def stop(self) -> None:
        """Close the port and all connections; idempotent."""
        if self._loop is not None and self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        self._stopping = True
        if self._thread is not None and self._wake is not None:
            self._wake.signal()
            self._thread.join()
            self._thread = None
            self._wake.close()

    def slaves(self) -> list[SlaveState]:
        """The slaves that have begun to follow."""
        now, end = self._now(), self._store.log.max_offset
        return [each.state(end, now) for each in list(self._slaves.values()) if each.started]

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            peer, address = self._listener.accept()
        except OSError as error:
            self._refusals.warning("no connection on the HA port: %s", error.strerror)
            return
        if not self._allowed.matches(address[0]) or len(self._slaves) >= CONNECTIONS_MAX:
            self._refusals.warning(
                "%s is refused on the HA port: haAllowedAddresses=%s, %d connections",
                *(address[0], self._settings.allowed_addresses, len(self._slaves)),
            )
            peer.close()
            return
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._new.append(peer)
        if self._wake is None:
            self._wake = EventFd()
            self._thread = threading.Thread(
                target=self._run, args=(self._wake,), name="ha-master", daemon=True
            )
            self._thread.start()
        self._wake.signal()

    # --- the thread

    def _run(self, wake: EventFd) -> None:
        events = select.epoll()
        events.register(wake, select.EPOLLIN)
        try:
            while not self._stopping:
                self._turn(events, wake)
        finally:
            self._store.backend.follow(-1)
            for slave in list(self._slaves.values()):
                self._close(slave, events)
            for peer in self._new:
                peer.close()
            events.close()

    def _turn(self, events: select.epoll, wake: EventFd) -> None:
        more = self._feed(events, wake)
        for descriptor, event in events.poll(0 if more else TICK_S):
            slave = self._slaves.get(descriptor)
            if slave is None:
                wake.clear()
                self._take_new(events, wake)
            elif event & ~select.EPOLLOUT:
                self._read(slave, events)
        if self._now() >= self._next_tick:
            self._next_tick = self._now() + TICK_S
            self._look(events)

    def _take_new(self, events: select.epoll, wake: EventFd) -> None:
        with self._lock:
            peers, self._new = self._new, []
        for peer in peers:
            try:
                slave = self._connection(peer)
            except OSError:  # it has gone again
                peer.close()
                continue
            self._slaves[peer.fileno()] = slave
            events.register(peer, select.EPOLLIN)
        self._store.backend.follow(wake.descriptor if self._slaves else -1)

    def _connection(self, peer: socket.socket) -> SlaveConnection:
        return SlaveConnection(
            peer,
            self._store.log,
            self._settings.transfer_batch_bytes,
            self._now(),
            self._check_login,
        )

    def _read(self, slave: SlaveConnection, events: select.epoll) -> None:
        began = slave.started
        try:
            there = slave.read(self._now())
        except (OSError, ReplicationError) as error:
            self._cut(slave, events, error)
            return
        if not there:
            logger.warning("slave %s has closed its connection", slave.address)
            self._close(slave, events)
            return
        if slave.started and not began:
            logger.warning("slave %s follows from %d", slave.address, slave.next)
        self._confirmed()

    def _confirmed(self) -> None:
        """Let sends go on that waited for what slaves have now."""
        following = [each for each in list(self._slaves.values()) if each.started]
        acknowledged = max((each.acknowledged for each in following), default=0)
        self._confirm.confirm(acknowledged, len(following))

    def _feed(self, events: select.epoll, wake: EventFd) -> bool:
        """Send all slaves what is new; whether to do it again at once."""
        if not self._slaves:
            return False
        more = self._send_all(events)
        if more or self._settings.sync_flush:
            return more
        # Ask for a signal, then look again for what was appended meanwhile.
        self._store.log.signal_append(wake.descriptor)
        end = self._end()
        return any(
            each.started and each.next < end and not each.is_blocked
            for each in list(self._slaves.values())
        )

    def _send_all(self, events: select.epoll) -> bool:
        end, now, more = self._end(), self._now(), False
        for slave in list(self._slaves.values()):
            was_blocked = slave.is_blocked
            try:
                more |= slave.send(end, now)
            except (OSError, ReplicationError) as error:
                self._cut(slave, events, error)
                continue
            if slave.is_blocked is not was_blocked:
                wanted = select.EPOLLIN | (select.EPOLLOUT if slave.is_blocked else 0)
                events.modify(slave.socket, wanted)
        return more

    def _end(self) -> int:
        """Slaves may have the log up to here."""
        if self._settings.sync_flush:
            return self._store.backend.durable_offset
        return self._store.log.max_offset

    def _look(self, events: select.epoll) -> None:
        """Cut silent slaves, and send due heartbeats."""
        now = self._now()
        for slave in list(self._slaves.values()):
            if now - slave.read_at > self._settings.silence_s:
                self._cut(slave, events, f"it was silent for {self._settings.silence_s:g} s")
            elif now - slave.written_at > self._settings.heartbeat_s:
                try:
                    slave.send_heartbeat(now)
                except OSError as error:
                    self._cut(slave, events, error)

    def _cut(self, slave: SlaveConnection, events: select.epoll, why: object) -> None:
        self._refusals.warning("connection of slave %s cut: %s", slave.address, why)
        self._close(slave, events)

    def _close(self, slave: SlaveConnection, events: select.epoll) -> None:
        if self._slaves.pop(slave.socket.fileno(), None) is not None:
            events.unregister(slave.socket)
            slave.close()
            self._confirmed()
