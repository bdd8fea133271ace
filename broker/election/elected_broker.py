"""A broker whose role an election decides: master or slave, for as long as a lease lasts."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from congreve.base.errors import CongreveError
from congreve.base.limited_log import LimitedLog
from congreve.broker.accounts.open_name_servers import refuse_open_name_servers
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.election.complete_log import CleanStop, CleanStopFile, CompleteLog
from congreve.broker.election.coordinator import (
    Coordinator,
    CoordinatorError,
    GroupState,
    LeaseLostError,
    Master,
    OutcomeUnknownError,
    Seat,
    StateChangedError,
)
from congreve.broker.election.coordinators import check_member, coordinator_of
from congreve.broker.election.epoch_log import EpochLog
from congreve.broker.election.fence import Fence
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease, boot_time
from congreve.broker.election.member import (
    Elect,
    ElectionMember,
    Follow,
    Knowledge,
    Note,
    Release,
    Step,
    Wait,
)
from congreve.broker.election.replication import ElectionReplication, Role
from congreve.broker.election.requests import note_replacement, note_request
from congreve.broker.hand_over.old_master import HandOver
from congreve.broker.pull.archive import OpenArchive
from congreve.broker.replication.replication import HA_DISTANCE
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.store import MessageStore
from congreve.remoting.loop.background import BackgroundTask, stop_all
from congreve.remoting.loop.loop_thread import Lifecycle

logger = logging.getLogger(__name__)

TEND_S = 0.05
"""How often a master looks whether the in-sync set should change, in seconds."""
RETRY_S = 0.5
"""The pause after a call to the coordination service that failed."""
SETTLE_S = 2.0
"""How long a master that leaves waits for slaves to get its last messages, in seconds."""
LOOK_S = 0.005
LEAVES = "this broker hands its group to another member: send again, to the new master"
MARGIN_SHARE = 0.2
"""The part of the lease's time by which this member stops earlier, for clocks that differ."""


class ElectedBroker(Lifecycle):
    """One member of a group: it runs a Broker in the role that it has now.

    A change of role stops that Broker and starts another one on the same store: its recovery ends
    the log at a whole message, completes the queues, and it registers at all name servers. Without
    a master, and without the right to become it, the member is a slave that follows none.
    (RocketMQ: ReplicasManager.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        config_path: Path | None = None,
        coordinator: Coordinator | None = None,
        clock: Callable[[], float] = boot_time,
        archive: OpenArchive | None = None,
        make_broker: Callable[..., Broker] = Broker,
        make_replication: Callable[..., ElectionReplication] = ElectionReplication,
        make_store: Callable[[StoreConfig], MessageStore] = MessageStore,
    ) -> None:
        """`make_store` opens a store that has to be cut.

        Raises ConfigError for settings that do not fit an election.
        """
        check_member(config)
        self.config = config
        self.broker: Broker | None = None
        """The Broker that runs now; None while the role changes."""
        self.ready = asyncio.Event()
        """Set while a Broker runs in the role that the last decision gave it."""
        self._config_path = config_path
        self._archive = archive
        self._make_broker = make_broker
        self._make_replication = make_replication
        self._make_store = make_store
        self._clock = clock
        ttl = config.election.ha_lease_seconds
        self._lease = MasterLease(ttl, ttl * MARGIN_SHARE, clock)
        self._coordinator = coordinator or coordinator_of(config)
        ha_port = config.replication.listen_port or config.listen_port + HA_DISTANCE
        self._member = ElectionMember(
            config.broker_id, config.address, f"{config.broker_ip2}:{ha_port}", self._lease
        )
        self._epochs = EpochLog(config.store)
        self._complete = CompleteLog(CleanStopFile(config.store.own_dir))
        self._state: GroupState | None = None
        self._master: Master | None = None
        self._cut_at: int | None = None
        self._changed = asyncio.Event()
        self._tasks: list[BackgroundTask] = []
        self._hand_over: HandOver | None = None  # after the last transfer
        self._log = LimitedLog(logger)
        self._why = ""
        self._known = Knowledge(newest_epoch=-1, claimed=0, has_messages=False)

    @property
    def is_master(self) -> bool:
        """Whether this member holds the lease, and its Broker runs as master."""
        broker = self.broker
        return self._member.term is not None and broker is not None and not broker.config.is_slave

    @property
    def term(self) -> InSyncSet | None:
        """The in-sync set of this member's term; None unless it is the master."""
        return self._member.term

    @property
    def address(self) -> str:
        """`ip:port` of the Broker."""
        return self.config.address

    async def start(self) -> None:
        """Start a slave, and take part in the election.

        Raises StoreError for a damaged epoch file, and what Broker.start() raises.
        """
        await refuse_open_name_servers(self.config)  # not again when the role changes
        await asyncio.to_thread(self._epochs.load)
        await asyncio.to_thread(self._complete.load)
        await self._run_slave()
        self._tasks = [
            BackgroundTask(f"an elected member's {name}", work, logger)
            for name, work in (
                ("watch of the group", self._watch),
                ("change of role", self._act),
                ("renewal of its lease", self._renew),
                ("care for the in-sync set", self._tend),
            )
        ]
        for task in self._tasks:
            task.start()
        logger.warning("member %d of %s takes part", self.config.broker_id, self.config.broker_name)

    async def stop(self) -> None:
        """Stop the Broker, then end the lease, so that another member takes over at once."""
        tasks, self._tasks = self._tasks, []
        await stop_all(tasks)
        leads = self._member.term is not None
        await self._end_hand_over()
        await self._stop_broker()
        await self._leave_mark()
        self._member.end_term()
        if leads:
            try:
                await self._coordinator.resign()
            except CoordinatorError as error:
                logger.warning("the lease expires by itself: %s", error)
        await self._coordinator.close()

    async def _leave_mark(self) -> None:
        try:
            await asyncio.to_thread(self._complete.save)
        except StoreError as error:
            logger.warning("the next start counts as one after an unclean stop: %s", error)

    # --- the state

    async def _watch(self) -> None:
        """Keep the state up to date."""
        while True:
            try:
                seen = self._state
                if seen is None:
                    state = await self._coordinator.read()
                else:
                    state = await self._coordinator.changed(seen, self._lease.ttl_s)
            except CoordinatorError as error:
                self._log.warning("the coordination service does not answer: %s", error)
                self._changed.set()  # the lease may have ended meanwhile
                await asyncio.sleep(RETRY_S)
                continue
            known = self._state
            if known is None or self._member.term is None or state.epoch >= known.epoch:
                self._state = state
            self._changed.set()

    async def _act(self) -> None:
        """Take the step that each new state requires."""
        while True:
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            step: Step = Wait("the coordination service does not answer")
            if self._state is not None:
                step = self._member.next_step(self._state, self._knowledge())
            try:
                await self._do(step)
            except (StateChangedError, OutcomeUnknownError) as error:
                self._log.warning("the group's state has changed: %s", error)
                self._state = await self._read()
            except (CongreveError, OSError) as error:
                logger.error("member %d fails in its role: %s", self.config.broker_id, error)
                await self._give_up()
                await asyncio.sleep(RETRY_S)

    async def _read(self) -> GroupState | None:
        try:
            return await self._coordinator.read()
        except CoordinatorError:
            return None

    def _knowledge(self) -> Knowledge:
        if self.broker is not None:
            store = self.broker.store
            begin, end = store.log.min_offset, store.log.max_offset
            self._known = self._known._replace(
                has_messages=end > begin, store=store.identity, end=store.scrub.whole_end(end)
            )
        return self._known._replace(
            newest_epoch=self._epochs.epochs.newest,
            claimed=self._epochs.claimed,
            is_whole=self._complete.is_whole,
            admitted_in=self._complete.admitted_in,
        )

    async def _do(self, step: Step) -> None:
        if isinstance(step, Elect):
            await self._elect(step)
        elif isinstance(step, Release):
            await self._release()
        elif isinstance(step, Follow):
            await self._follow(step.master)
        elif isinstance(step, Note):
            await self._follow(None)
            await self._note(step)
        elif isinstance(step, Wait):
            if step.why != self._why:
                logger.warning("member %d waits: %s", self.config.broker_id, step.why)
            await self._follow(None)
        self._why = step.why if isinstance(step, Wait) else ""

    async def _note(self, step: Note) -> None:
        """Change this member's seat; at an error the next step tries again."""
        try:
            self._state = await self._coordinator.note(step.seen, self.config.broker_id, step.seat)
        except CoordinatorError as error:
            if not isinstance(error, StateChangedError):
                self._log.warning("the coordination service has no new seat: %s", error)
            self._state = await self._read()
        self._changed.set()

    # --- roles

    async def _elect(self, step: Elect) -> None:
        await self._run_slave()
        await asyncio.to_thread(self._epochs.claim, step.candidate.epoch)
        sent_at = self._lease.now()
        ttl_s = self.config.election.ha_lease_seconds
        self._state = state = await self._coordinator.elect(step.seen, step.candidate, ttl_s)
        term = InSyncSet(
            state,
            max_lag_s=self.config.election.ha_max_time_slave_not_catchup / 1000,
            min_in_sync=self.config.election.min_in_sync_replicas,
        )
        self._member.begin_term(term, sent_at)
        await self._stop_broker()
        await self._start_broker("SYNC_MASTER", 0, term, self._known.end)
        self._lead_to(state.master)
        logger.warning(
            "member %d is the master of %s in epoch %d",
            *(self.config.broker_id, self.config.broker_name, state.epoch),
        )
        note_request(self.config, step.seen.request, f"master in epoch {state.epoch}")

    async def _release(self) -> None:
        if self._member.term is not None:
            await self._leave()
        await self._run_slave()
        await self._coordinator.resign()

    async def _leave(self) -> None:
        """Let another member be the master, with every message that is acknowledged here.

        The requests that clients send from now on wait in their connections, for the new master.
        """
        state, broker = self._state, self.broker
        note_request(self.config, None if state is None else state.request, "leaves")
        fence = None if broker is None else self._fence_of(broker)
        if broker is None or fence is None:
            await self._give_up()
            return
        await self._end_hand_over()
        await broker.ports.hold()
        until = self._clock() + SETTLE_S
        await self._wait(lambda: not broker.ports.unanswered, until)
        broker.store.health.set_role(LEAVES)
        await self._wait(lambda: fence.is_settled, until)
        self._member.end_term()
        fence.close()
        await self._resign()  # before the store is closed: the next master need not wait for that
        server = await broker.ports.leave()
        if server is not None:
            self._hand_over = HandOver(server, broker.replication.connector)
            self._hand_over.start()
        await self._stop_broker()
        self._state = None

    async def _wait(self, condition: Callable[[], bool], until: float) -> None:
        """Wait for it, at most as long as this member may acknowledge messages."""
        while not condition() and self._lease.held and self._clock() < until:
            await asyncio.sleep(LOOK_S)

    async def _end_hand_over(self) -> None:
        hand_over, self._hand_over = self._hand_over, None
        if hand_over is not None:
            await hand_over.stop()

    def _handed_on(self) -> tuple[int, int] | None:
        hand_over = self._hand_over
        if hand_over is None or hand_over.is_over:
            return None
        return hand_over.handed_on, int(hand_over.quiet_s * 1000)

    def _lead_to(self, master: Master | None) -> None:
        """Hand requests on to this master."""
        if self._hand_over is not None and master is not None:
            self._hand_over.lead_to(master.ha_address)

    async def _follow(self, master: Master | None) -> None:
        await self._run_slave()
        if self._cut_at is not None:
            await self._stop_broker()
            await asyncio.to_thread(self._cut_store, self._cut_at)
            self._cut_at = None
            await self._run_slave()
        if master != self._master:
            self._master = master
            logger.warning("member %d follows %s", self.config.broker_id, master)
        assert self.broker is not None
        assert isinstance(self.broker.replication, ElectionReplication)
        self.broker.replication.follow(master)
        self._lead_to(master)

    async def _run_slave(self) -> None:
        if self.broker is not None and not self.broker.config.is_slave:
            await self._stop_broker()
        if self.broker is None:
            self._master = None
            await self._start_broker("SLAVE", self.config.broker_id)

    async def _start_broker(
        self, role: str, broker_id: int, term: InSyncSet | None = None, end: int = 0
    ) -> None:
        settings = {"broker_role": role, "broker_id": broker_id, "acl_open_name_servers": True}
        config = msgspec.structs.replace(self.config, **settings)
        in_role = Role(
            *(self.config.broker_id, self._lease, self._epochs, self._complete),
            diverged=self._note_diverged,
            term=term,
            end=end,
            handed_on=self._handed_on,
        )
        broker = self._make_broker(
            config,
            config_path=self._config_path,
            replication=partial(self._make_replication, in_role),
            archive=self._archive,
        )
        assert isinstance(broker.replication, ElectionReplication)
        broker.replication.adopt = broker.ports.adopt
        await broker.start()
        self.broker = broker
        self.ready.set()

    async def _stop_broker(self) -> None:
        self.ready.clear()
        broker, self.broker = self.broker, None
        if broker is not None:
            fence = self._fence_of(broker)
            if fence is not None:
                fence.close()
            await broker.stop()
            store = broker.store
            left = CleanStop(store.identity, store.log.max_offset, self._epochs.epochs.newest)
            self._complete.closed(left, left_clean=store.left_clean)

    async def _give_up(self) -> None:
        """Let another member take over: this one cannot run in its role."""
        self._member.end_term()
        await self._stop_broker()
        await self._resign()
        self._state = None

    async def _resign(self) -> None:
        try:
            await self._coordinator.resign()
        except CoordinatorError as error:
            self._log.warning("the lease expires by itself: %s", error)

    def _note_diverged(self, common_end: int) -> None:
        self._cut_at = common_end
        self._changed.set()

    def _cut_store(self, at: int) -> None:
        """End the log where it is still that of the group; the Broker is stopped."""
        logger.warning("member %d cuts its log at %d", self.config.broker_id, at)
        store = self._make_store(self.config.store)
        store.start(cut_at=at, follows=True)
        store.close()
        self._epochs.save(self._epochs.epochs.cut(at))

    # --- while this member is the master

    async def _renew(self) -> None:
        """Renew the lease three times within its duration."""
        while True:
            await asyncio.sleep(self._lease.ttl_s / 3)
            term = self._member.term
            if term is None:
                continue
            sent_at = self._lease.now()
            try:
                await self._coordinator.keep_alive()
            except LeaseLostError as error:
                if self._member.term is term:
                    logger.warning(
                        "member %d is no longer the master: %s", term.master.member, error
                    )
                    self._member.end_term()
                    self._state = None
                    self._changed.set()
            except CoordinatorError as error:
                self._log.warning("the lease is not renewed: %s", error)
            else:
                if self._member.term is term:
                    self._lease.renewed(sent_at)

    async def _tend(self) -> None:
        """Send changes of the in-sync set, and stop answers when the lease ends."""
        while True:
            await asyncio.sleep(TEND_S)
            fence = None if self.broker is None else self._fence_of(self.broker)
            if fence is None or self._member.term is not fence.term:
                continue
            if not self._lease.held:
                logger.warning("this member is no longer the master: its lease has ended")
                fence.close()
                self._member.end_term()
                self._changed.set()
                continue
            await self._give_seats(fence)
            members = fence.proposal()
            if members is None:
                continue
            seen = fence.term.state
            try:
                since = fence.since(members)
                fence.committed(await self._coordinator.change_set(seen, members, since))
                if members != seen.in_sync:
                    logger.warning("the in-sync set is %s", sorted(members))
            except StateChangedError:
                await self._settle(fence.term.master, members)
            except CoordinatorError as error:
                self._log.warning("the in-sync set is not changed yet: %s", error)

    async def _give_seats(self, fence: Fence) -> None:
        """Give members' numbers to other stores that run with them, where nothing is lost."""
        state = self._state
        if state is None or state.master != fence.term.master:
            return
        fence.note_owners({number: seat.store for number, seat in state.seats.items()})
        for number, seat in state.seats.items():
            claim = seat.claim
            if claim is None or number == self.config.broker_id:
                continue
            if not (claim.is_empty or claim.by):
                continue
            if not fence.vacate(number, claim.store, connected_too=bool(claim.by)):
                continue
            try:
                self._state = await self._coordinator.note(state, number, Seat(claim.store))
            except CoordinatorError as error:
                self._log.warning("member %d does not get its number yet: %s", number, error)
            else:
                logger.warning("member %d is the store %s from now on", number, claim.store)
                if claim.by:
                    note_replacement(self.config, number, claim)
            return

    async def _settle(self, master: Master, members: frozenset[int]) -> None:
        """An earlier attempt to change the set succeeded, or the term is over."""
        state = await self._read()
        fence = None if self.broker is None else self._fence_of(self.broker)
        if state is None or fence is None or fence.term.master != master:
            return
        if state.master == master and state.in_sync == members:
            fence.committed(state)
            self._state = state
        else:
            self._member.end_term()
            self._state = state
            self._changed.set()

    @staticmethod
    def _fence_of(broker: Broker) -> Fence | None:
        replication = broker.replication
        return replication.fence if isinstance(replication, ElectionReplication) else None
