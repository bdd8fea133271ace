"""A slave's second connection to its master, on which either asks the other for records."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

from congreve.base.errors import CongreveError
from congreve.base.limited_log import LimitedLog
from congreve.broker.ha_frames import REPAIR, REPAIR_ACCEPTED
from congreve.broker.repair.log_repair import LogRepair
from congreve.broker.replication.ha_connector import CONNECT_S, HaConnector
from congreve.broker.replication.master_requests import MasterRequests
from congreve.broker.replication.slave import MasterAddress, Slave
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.remoting.loop.background import BackgroundTask
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.loop.receiving import receive

LOOK_S = 0.5
"""How often it looks whom the slave follows, in seconds."""
RETRY_S = 30.0
"""The pause after a master that does not answer repairs, in seconds."""
REFUSAL = "the master is RocketMQ's or of an earlier version, and cannot be asked"

logger = logging.getLogger(__name__)


class RepairLink:
    """Keeps the connection to the master that the slave asks (Slave.asked).

    (RocketMQ: none.)
    """

    def __init__(
        self,
        slave: Slave,
        requests: Callable[[], MasterRequests | None],
        connector: HaConnector,
        repair: LogRepair,
    ) -> None:
        self._slave = slave
        self._requests = requests
        self._connector = connector
        self._repair = repair
        self._log = LimitedLog(logger, 60.0)
        self._open: tuple[MasterAddress, socket.socket] | None = None
        self._leaving = Periodic(LOOK_S, self._leave)
        self._task = BackgroundTask("the connection for repairs", self._run, logger)

    def start(self) -> None:
        """Begin, on the running loop."""
        self._leaving.start()
        self._task.start()

    async def stop(self) -> None:
        """End the connection; idempotent."""
        self._leaving.stop()
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            master, requests = self._slave.asked, self._requests()
            pause = LOOK_S
            if master is not None and requests is not None:
                try:
                    if await requests.answers_repairs():
                        self._repair.refusal = ""
                        await self._link(master)
                    else:
                        self._repair.refusal, pause = REFUSAL, RETRY_S
                        self._log.warning("damage of the log cannot be repaired: %s", REFUSAL)
                except (CongreveError, OSError, EOFError) as error:
                    why = self._connector.why(error)
                    self._log.warning("no repairs with %s: %s", master.ha, why)
            await asyncio.sleep(pause)

    async def _link(self, master: MasterAddress) -> None:
        peer = await self._connector.connect(master.ha)
        with peer:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(peer, REPAIR)
            await self._connector.log_in(peer)
            await loop.sock_sendall(peer, REPAIR)
            async with asyncio.timeout(CONNECT_S):
                await self._accepted(peer)
            self._open = master, peer
            try:
                await self._repair.serve(peer, f"{master.ha} (master)")
            finally:
                self._open = None

    async def _leave(self) -> None:
        """End the connection to a master that the slave does not ask any more."""
        if self._open is not None and self._slave.asked != self._open[0]:
            with suppress(OSError):  # it has gone
                self._open[1].shutdown(socket.SHUT_RDWR)

    async def _accepted(self, peer: socket.socket) -> None:
        closed = ReplicationError("the master has closed the connection: its log says why")
        received = await receive(peer, len(REPAIR_ACCEPTED), closed=closed)
        if received != REPAIR_ACCEPTED:
            raise ReplicationError(f"the master answers {received!r} to a connection for repairs")
