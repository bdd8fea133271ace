"""The HA port of a master (RocketMQ: HAService with AcceptSocketService)."""

import asyncio
import errno
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from congreve.base.forks import in_each_child
from congreve.base.limited_log import LimitedLog
from congreve.broker.accounts.addresses import AddressPattern
from congreve.broker.errors import BrokerError
from congreve.broker.replication.login import HaLogin
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import ReplicationError, SlaveConnection
from congreve.broker.replication.slave_loop import CONNECTIONS_MAX, SlaveLoop
from congreve.broker.replication.state import SlaveState
from congreve.broker.replication.strangers import Stranger, Strangers
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.rounds import Rounds
from congreve.engine.store import MessageStore
from congreve.remoting.loop.event_fd import EventFd
from congreve.remoting.tls.certificates import ServerCertificates
from congreve.remoting.tls.errors import NotEncryptedError
from congreve.remoting.tls.relay import Opened, RelayedSocket, TlsRelay

logger = logging.getLogger(__name__)

SLAVES_MAX = 64
"""How many slaves there are at most; strangers have places of their own."""
BACKLOG = 16
ACCEPT_PAUSE_S = 0.25
"""How long the port accepts nothing after an error, such as no free descriptor, in seconds."""
TICK_S = 1.0
"""How often the thread looks for silent slaves and due heartbeats, in seconds."""


class HAService:
    """Listens for slaves, and sends them the log on a thread of its own.

    The thread starts with the first slave, so a broker without one only has a listening socket.
    With SYNC_FLUSH slaves get what is on this master's disk, so that none is ahead of a master that
    crashed. A connection is a stranger's until it has logged in, or reported where a login is not
    needed; one slave too many takes the place of another one. It disconnects a slave whose address
    `haAllowedAddresses` does not match, and one that reports nothing for haHousekeepingInterval or
    an offset that cannot be true. With `login` slaves log in, unless haAllowedAddresses names
    addresses. With certificates in `settings` each connection goes through a TlsRelay. `confirm`
    gets the offset that any slave has confirmed; with None a subclass does that. `repair` gets the
    connections for repairs, with the bytes behind their login and their name; without it they are
    cut. (RocketMQ: HAService.)
    """

    tick_s = TICK_S

    def __init__(
        self,
        store: MessageStore,
        confirm: ConfirmOffset | None,
        settings: ReplicationSettings,
        login: HaLogin | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        repair: Callable[[socket.socket, bytes, str], None] | None = None,
    ) -> None:
        self._store = store
        self._repair = repair
        self._confirm = confirm
        self._settings = settings
        self._allowed = AddressPattern.parse(settings.allowed_addresses)
        # An address that is named needs no login: RocketMQ's slaves have none.
        self._login = login if self._allowed.everything else None
        self._now = monotonic
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # for _new
        self._new: list[tuple[socket.socket, Stranger]] = []
        self._strangers = Strangers(monotonic)
        self._unknown: dict[SlaveConnection, Stranger] = {}  # of the thread
        self._relays: list[TlsRelay] = []
        self._wake: EventFd | None = None
        self._slaves: SlaveLoop | None = None
        self._next_look = 0.0
        self._stopping = False
        self._refusals = LimitedLog(logger)

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
        in_each_child(self._close_listener)
        self._loop = asyncio.get_running_loop()
        self._listen()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def stop(self) -> None:
        """Close the port and all connections; idempotent."""
        if self._loop is not None and self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        self._stopping = True
        if self._thread is not None and self._wake is not None and self._slaves is not None:
            self._slaves.ask()
            self._thread.join()
            self._thread = None
        self._close_new()
        if self._wake is not None:
            self._wake.close()
            self._wake = None
        for relay in self._relays:
            relay.cut()
            relay.join()
        self._relays.clear()

    def slaves(self) -> list[SlaveState]:
        """The slaves that have begun to follow."""
        if self._slaves is None:
            return []
        now, end = self._now(), self._store.log.max_offset
        return [each.state(end, now) for each in list(self._slaves.slaves) if each.started]

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            peer, address = self._listener.accept()
        except OSError as error:
            self._refusals.warning("no connection on the HA port: %s", error.strerror)
            if error.errno != errno.EAGAIN:
                self._pause()
            return
        if not self._allowed.matches(address[0]):
            self._refusals.warning(
                "%s is refused on the HA port: haAllowedAddresses=%s",
                *(address[0], self._settings.allowed_addresses),
            )
            peer.close()
            return
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        certificates = self._settings.certificates
        if certificates is None:
            self._take(peer, self._strangers.enter(address[0], partial(_shut_down, peer)))
        else:
            self._encrypt(peer, address[0], certificates)

    def _pause(self) -> None:
        """Accept nothing for a moment: a connection that waits would ask again at once."""
        assert self._loop is not None and self._listener is not None
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(ACCEPT_PAUSE_S, self._listen)

    def _listen(self) -> None:
        if self._loop is not None and self._listener is not None:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _take(self, peer: socket.socket, stranger: Stranger) -> None:
        """Let the thread serve a connection."""
        with self._lock:
            self._new.append((peer, stranger))
        self._serve_new()

    def _serve_new(self) -> None:
        if self._stopping:
            return
        if self._slaves is None:
            try:
                self._slaves = self._start_thread()
            except (OSError, RuntimeError) as error:  # no descriptor, or no thread
                assert self._loop is not None
                self._refusals.warning("slaves are not served yet: %s", error)
                self._loop.call_later(ACCEPT_PAUSE_S, self._serve_new)
                return
        self._slaves.ask()

    def _encrypt(self, peer: socket.socket, address: str, certificates: ServerCertificates) -> None:
        assert self._loop is not None
        try:
            tls = certificates.context.wrap_socket(
                peer, server_side=True, do_handshake_on_connect=False
            )
        except OSError:  # it has gone again
            peer.close()
            return
        loop = self._loop

        def opened(result: Opened) -> None:
            loop.call_soon_threadsafe(self._opened, stranger, certificates, result)

        relay = TlsRelay(tls, certificates.settings.handshake_timeout_s, opened)
        stranger = self._strangers.enter(address, relay.cut)
        self._relays = [each for each in self._relays if each.is_alive()]
        self._relays.append(relay)
        relay.start()

    def _opened(self, stranger: Stranger, certificates: ServerCertificates, result: Opened) -> None:
        address = stranger.address
        if isinstance(result, RelayedSocket):
            if self._stopping:
                result.close()
            else:
                self._take(result, stranger)
            return
        self._strangers.leave(stranger)
        if isinstance(result, NotEncryptedError):
            self._refusals.warning(
                "%s is refused on the HA port: it does not encrypt, but haTlsEnable=true here: set"
                " it at the slave, too",
                address,
            )
        elif isinstance(result, TimeoutError):
            certificates.note_late_handshake(address)
        else:
            certificates.note_failed_handshake(address, result)

    def _start_thread(self) -> SlaveLoop:
        if self._wake is None:
            self._wake = EventFd()
        slaves = SlaveLoop(
            self._store.log,
            self._confirm,
            wake=self._wake.descriptor,
            sync_flush=self._settings.sync_flush,
        )
        thread = threading.Thread(target=self._run, args=(slaves,), name="ha-master", daemon=True)
        thread.start()
        self._thread = thread
        return slaves

    # --- the thread

    def _run(self, slaves: SlaveLoop) -> None:
        turn = Rounds("serving slaves", lambda: self._turn(slaves, self._next_look))
        try:
            while not self._stopping:
                if not turn():
                    time.sleep(ACCEPT_PAUSE_S)
        finally:
            self._close_all(slaves)

    def _turn(self, slaves: SlaveLoop, until: float) -> None:
        """Serve what has happened, or happens before `until`."""
        for slave in slaves.serve(until):
            self._serve(slave, slaves)
        self._take_new(slaves)
        if self._now() >= self._next_look:
            self._look(slaves)
            self._next_look = self._now() + self.tick_s

    def _close_all(self, slaves: SlaveLoop) -> None:
        for slave in list(slaves.slaves):
            self._close(slave, slaves)

    def _close_new(self) -> None:
        with self._lock:
            peers, self._new = self._new, []
        for peer, _ in peers:
            peer.close()

    def _take_new(self, slaves: SlaveLoop) -> None:
        with self._lock:
            peers, self._new = self._new, []
        for peer, stranger in peers:
            try:
                if len(slaves.slaves) < CONNECTIONS_MAX:  # some were cut, and are there still
                    slave = self._connection(peer)
                    slaves.add(slave)
                    self._unknown[slave] = stranger
                    continue
            except OSError:  # it has gone again
                pass
            peer.close()
            self._strangers.leave(stranger)

    def _connection(self, peer: socket.socket) -> SlaveConnection:
        return SlaveConnection(
            peer,
            self._store.log,
            self._settings.transfer_batch_bytes,
            self._now(),
            self._login,
        )

    def _serve(self, slave: SlaveConnection, slaves: SlaveLoop) -> None:
        """Handle what the compiled loop leaves to Python."""
        began, now = slave.started, self._now()
        try:
            there = slave.read(now)
            if there and slave.send(self._end(), now):
                slaves.ask()
        except (OSError, ReplicationError) as error:
            self._cut(slave, slaves, error)
            return
        except Exception:
            self._cut(slave, slaves, "serving it failed")
            raise
        if slave.repairs and slave.logged_in:
            self._hand_over(slave, slaves)
            return
        if slave in self._unknown and (slave.started or (self._login and slave.logged_in)):
            self._strangers.leave(self._unknown.pop(slave))
            self._make_room(slave, slaves)
        if not there:
            log = self._refusals if slave in self._unknown else logger
            log.warning("slave %s has closed its connection", slave.address)
            self._close(slave, slaves)
            return
        if slave.started and not began:
            logger.warning("slave %s follows from %d", slave.address, slave.acknowledged)
        slaves.confirm_reports()

    def _make_room(self, new: SlaveConnection, slaves: SlaveLoop) -> None:
        """Cut a slave if there is one too many: of the address that has most, what is furthest
        behind. Without a login any client may claim to be one, but a real slave keeps up."""
        others = [each for each in slaves.slaves if each not in self._unknown and each is not new]
        if len(others) < SLAVES_MAX:
            return
        hosts = Counter(_host(each) for each in others)
        most = max(hosts.values())
        crowd = (each for each in others if hosts[_host(each)] == most)
        last = min(crowd, key=lambda each: each.acknowledged)
        why = f"there are {SLAVES_MAX} slaves, and {new.address} is new: set haAllowedAddresses"
        self._cut(last, slaves, why)

    def _hand_over(self, slave: SlaveConnection, slaves: SlaveLoop) -> None:
        """Leave a connection for repairs to the event loop."""
        if self._repair is None or self._loop is None:
            self._cut(slave, slaves, "it asks for repairs")
            return
        slaves.remove(slave)
        self._strangers.leave(self._unknown.pop(slave))
        name = f"{slave.address} (slave)"
        self._loop.call_soon_threadsafe(self._repair, slave.socket, slave.unused(), name)

    def _end(self) -> int:
        """Slaves may have the log up to here."""
        if self._settings.sync_flush:
            return self._store.backend.durable_offset
        return self._store.log.max_offset

    def _look(self, slaves: SlaveLoop) -> None:
        """Disconnect silent slaves, and send due heartbeats."""
        now = self._now()
        self._strangers.cut_late()
        for slave in list(slaves.slaves):
            if now - slave.read_at > self._settings.silence_s:
                self._cut(slave, slaves, f"it was silent for {self._settings.silence_s:g} s")
            elif now - slave.written_at > self._settings.heartbeat_s:
                try:
                    slave.send_heartbeat(now)
                except OSError as error:
                    self._cut(slave, slaves, error)

    def _cut(self, slave: SlaveConnection, slaves: SlaveLoop, why: object) -> None:
        self._refusals.warning("connection of slave %s cut: %s", slave.address, why)
        self._close(slave, slaves)

    def _close(self, slave: SlaveConnection, slaves: SlaveLoop) -> None:
        slaves.remove(slave)
        slave.close()
        stranger = self._unknown.pop(slave, None)
        if stranger is not None:
            self._strangers.leave(stranger)
        slaves.confirm_reports()


def _host(slave: SlaveConnection) -> str:
    return slave.address.rpartition(":")[0]


def _shut_down(peer: socket.socket) -> None:
    """End a connection; the thread that reads it closes it."""
    with suppress(OSError):  # it has gone
        peer.shutdown(socket.SHUT_RDWR)
