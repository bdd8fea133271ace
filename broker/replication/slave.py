"""A slave: it finds its master, checks its log, and follows it (RocketMQ: HAService.HAClient)."""

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from congreve.base.errors import CongreveError
from congreve.base.limited_log import LimitedLog
from congreve.broker.replication.ha_connector import HaConnector
from congreve.broker.replication.log_follower import LogFollower
from congreve.broker.replication.login import HaLogin
from congreve.broker.replication.master_requests import MasterRequests
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.remoting.loop.background import BackgroundTask
from congreve.remoting.transport.client import RemotingClient

logger = logging.getLogger(__name__)

RETRY_S = 1.0
FIRST_BYTE = 1
"""What a slave without a log asks for, if the master's log begins at 0: a RocketMQ master answers 0
with its last file. The byte before is 0 in every log: the size of a record is below 16 MiB."""


class MasterAddress(NamedTuple):
    """Where a master is: `ha` for its log, `broker` for requests; host:port each."""

    ha: str
    broker: str


class Slave:
    """Keeps a connection to the master that `find_master` names, None as long as there is none.

    Before it follows, it compares its newest message with the master's at that place: a RocketMQ
    slave continues in the middle of another log. A slave without a log begins where the master's
    log begins (D24). A master that is refused is tried again, once a second. (RocketMQ:
    HAService.HAClient.)
    """

    def __init__(
        self,
        store: MessageStore,
        settings: ReplicationSettings,
        find_master: Callable[[], MasterAddress | None],
        client: RemotingClient,
        arrived: Callable[[set[ConsumeQueue]], None],
        login: HaLogin | None = None,
    ) -> None:
        self._store = store
        self._connector = HaConnector(settings.client_ssl, login)
        self._find_master = find_master
        self._client = client
        self._follower = self._new_follower(settings, arrived)
        self._executor = ThreadPoolExecutor(1, "ha-slave")
        self._task: BackgroundTask | None = None
        self._log = LimitedLog(logger)
        self._known = asyncio.Event()
        self.following: MasterAddress | None = None
        """The master whose log arrives now."""
        self.trouble = "no master is known yet"
        """Why it follows none, empty while it does."""

    def _new_follower(
        self,
        settings: ReplicationSettings,
        arrived: Callable[[set[ConsumeQueue]], None],
    ) -> LogFollower:
        return LogFollower(self._store, settings, arrived)

    @property
    def asked(self) -> MasterAddress | None:
        """The master that is asked for damaged records: its log is the same."""
        return self.following

    def start(self) -> None:
        """Follow on the running loop."""
        self._task = BackgroundTask("the connection to the master", self._run, logger)
        self._task.start()

    def remove_topic(self, topic: str, log_end: int) -> bool:
        """Remove the queues of a topic that the master has deleted (LogReceiver.remove_topic)."""
        return self._follower.receiver.remove_topic(topic, log_end)

    def master_known(self) -> None:
        """Look for the master now: its address is known, or has changed."""
        self._known.set()

    async def stop(self) -> None:
        """Leave the master; what has arrived is in the log. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        self._follower.stop()
        await task.stop()
        await asyncio.to_thread(self._executor.shutdown)
        self._follower.close()

    async def _run(self) -> None:
        while True:
            master = self._find_master()
            try:
                if master is not None:
                    await self._follow(master)
            except (CongreveError, OSError) as error:
                self.trouble = f"{master.ha if master else ''}: {self._connector.why(error)}"
                self._log.warning("this slave does not follow its master at %s", self.trouble)
            finally:
                self.following = None
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._known.wait()
            except TimeoutError:
                continue
            self._known.clear()

    async def _follow(self, master: MasterAddress) -> None:
        start = await self._start_at(MasterRequests(self._client, master.broker))
        peer = await self._connector.connect(master.ha)
        with peer:
            await self._connector.log_in(peer)
            logger.warning("this slave follows %s from %d", master.ha, start)
            self.following, self.trouble = master, ""
            await self._receive(peer, start)

    async def _receive(self, peer: socket.socket, start: int) -> None:
        """Take the master's log until the connection ends, on the thread of this slave."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._follower.follow, peer, start)

    async def _start_at(self, master: MasterRequests) -> int:
        """Where to begin. Raises ReplicationError for the log of another history."""
        begin, end = await master.span()
        mine = self._store.log.max_offset
        if mine > end:
            raise ReplicationError(
                f"this slave's log ends at {mine}, ahead of the master's, which ends at {end}"
            )
        if mine == self._store.log.min_offset:
            if begin != mine:
                await asyncio.to_thread(self._follower.receiver.begin_at, begin)
            return FIRST_BYTE if begin == 0 < end else begin
        if mine < begin:
            raise ReplicationError(
                f"this slave's log ends at {mine}, and the master's begins at {begin}: the part"
                " between has expired; remove this slave's store"
            )
        await master.check_same(self._store, self._follower.receiver.last_record)
        return mine
