"""The paths of messages through an open store, compiled and in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.put_times import PutTimes
from congreve.broker.figures.rpc_times import RpcTimes
from congreve.broker.figures.slow_requests import SlowRequests
from congreve.broker.managers import Managers
from congreve.broker.pull.archive import OpenArchive
from congreve.broker.pull.lanes.polling import WAITING_BYTES_MAX, watcher_of_lane
from congreve.broker.pull.lanes.pulls import LanePulls
from congreve.broker.pull.processor import PullMessageProcessor
from congreve.broker.pull.progress import FLAG_BITS, POLLED
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.broker.quotas.send_quota import SendQuota
from congreve.broker.requests.settings import fast_path_settings, follow_topics
from congreve.broker.requests.topic_table import TopicTable
from congreve.broker.serving.fastpath import FastPath
from congreve.broker.serving.lane_server import (
    APPENDED_KIND,
    ARRIVED_KIND,
    PULL_ENDED_KIND,
    PULL_UNREADABLE_KIND,
    LaneServer,
    queues_of,
)
from congreve.engine.log.watch import take_watchers
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.store import MessageStore
from congreve.remoting.lanes.transport import FrameProtocol
from congreve.remoting.transport.connection import Connection

if TYPE_CHECKING:
    # numpy is loaded by brokers that read tables only.
    from congreve.broker.pull.archived_pulls import ArchivedPulls


class MessagePaths:
    """Group commit, pulls and the fast path of one broker; its store is open.

    It calls `arrived` with each queue of parked messages that got an entry; answers wait for
    `confirm`. `lanes` has the path of each lane.
    """

    def __init__(
        self,
        managers: Managers,
        arrived: Callable[[ConsumeQueue], None],
        quotas: QuotaTable,
        confirm: ConfirmOffset,
        access: AccessControl | None = None,
        archive: OpenArchive | None = None,
        *,
        rpc_times: RpcTimes,
        slow: SlowRequests | None = None,
    ) -> None:
        config, store = managers.config, managers.store
        self._quotas = quotas
        self._managers = managers
        self._access = access
        self._arrived = arrived
        self._rpc_times = rpc_times
        self.topics = TopicTable(store.log.lock)
        self.lanes: list[LaneServer] = []
        self._confirm = confirm
        self.group_commit = GroupCommit(config, waits_for_slaves=confirm.waits_for_slaves)
        self.pulls = PullMessageProcessor(
            config=config,
            metadata=managers.metadata,
            consumers=managers.members.consumers,
            store=store,
            stats=managers.stats,
            clock=managers.clock,
            quota=PullQuota(quotas),
            note_read=_ignore if slow is None else slow.note_read,
            note_pull=managers.pops.note_pull,
            archived=None if archive is None else _archived_pulls(config, store, archive),
        )
        follow_topics(managers.metadata.topics, self.topics)
        for number in range(config.network_threads):
            self.lanes.append(self._new_lane(number))
        for lane in self.lanes:
            lane.follow(self.lanes)
        managers.lites.topics.tell_full = self._lites_full
        managers.pops.recheck_lanes = self._recheck_pops
        managers.pops.forget_pulls = self.pulls.validation.plans.forget
        if slow is not None:
            slow.watch_threads(self.put_times)
        store.health.follow(self._lanes_accept)

    def _new_lane(self, number: int) -> LaneServer:
        store = self._managers.store
        pulls = LanePulls(
            store,
            self.pulls.validation.plans,
            self._quotas,
            watcher=watcher_of_lane(number),
            ended_kind=PULL_ENDED_KIND,
            unreadable_kind=PULL_UNREADABLE_KIND,
            waiting_bytes_max=WAITING_BYTES_MAX // self._managers.config.network_threads,
        )
        self.pulls.validation.follow_lane(pulls.table)
        return LaneServer(
            self._new_fast_path(),
            pulls,
            self._managers.pop_lanes.server(number, self._quotas),
            store,
            posts_appends=store.flush_timer.wants_wake,
            confirm=self._confirm,
            timeout_s=self.group_commit.timeout_s,
            leader=self.lanes[0] if number else None,
        )

    def _new_fast_path(self) -> FastPath:
        managers, config = self._managers, self._managers.config
        return FastPath(
            store=managers.store,
            topics=self.topics,
            transactions=managers.transactions.fast_path(self.topics),
            delays=managers.delayed.fast_path(config.broker_cluster_name, config.broker_name),
            settings=fast_path_settings(config),
            quota=SendQuota(self._quotas),
            accounts=None if self._access is None else self._access.table,
        )

    def leave_to_handlers(self, *listeners: int) -> None:
        """Let handlers serve all requests that come to these listeners, by their places."""
        for lane in self.lanes:
            lane.by_handlers |= sum(1 << place for place in listeners)

    def set_store_host(self, host: bytes) -> None:
        """Set the broker's address, 4 or 16 bytes and the port as i32, before it is served."""
        for lane in self.lanes:
            lane.set_store_host(host)

    def lane_entry(
        self, protocol: FrameProtocol | None, kind: int, data: bytes, number: int
    ) -> None:
        """Handle an entry that a lane passes to the event loop (lane_server.pyx)."""
        if kind == ARRIVED_KIND:
            for queue in queues_of(data):
                self._arrived(queue)
        elif kind == APPENDED_KIND:
            self._managers.store.after_append(self._managers.store.log.max_offset)
        elif self._managers.pop_lanes.take_entry(protocol, kind, data):
            pass
        elif not isinstance(protocol, Connection):
            pass  # it has been closed
        elif kind == PULL_ENDED_KIND:
            waited_s = (number >> FLAG_BITS) / 1000 if number & POLLED else None
            with self._rpc_times.waited(waited_s), self.pulls.given_back(number):
                protocol.on_frame(data)
        elif kind == PULL_UNREADABLE_KIND:
            self.pulls.unreadable.add(protocol, data)
        else:
            protocol.write(self.group_commit.not_durable(data, number))

    def recheck_pulls(self) -> None:
        """Answer all waiting pulls: some may not be permitted any more."""
        self.pulls.validation.plans.note_change()
        for lane in self.lanes:
            lane.end_pulls()

    def _lites_full(self, is_full: bool) -> None:
        self.topics.lite_full = is_full

    def _recheck_pops(self) -> None:
        for lane in self.lanes:
            lane.recheck_pops()

    def notify(self, queue: ConsumeQueue) -> None:
        """Wake the pulls and pops that wait for this queue, which has a new entry."""
        watchers = take_watchers(queue)
        for number, lane in enumerate(self.lanes):
            if watchers & watcher_of_lane(number):
                lane.notify(queue)

    def show_more(self) -> None:
        """Wake the pulls that wait for entries which readers see only now."""
        for lane in self.lanes:
            lane.show_more()

    def dismiss_pulls(self) -> None:
        """Answer all waiting pulls that the broker stops; their connections are closed next."""
        self.pulls.stop()
        for lane in self.lanes:
            lane.dismiss(self.pulls.answers.stopping_remark.encode())

    @property
    def stored_by_fast_path(self) -> int:
        """Messages that compiled code has appended."""
        return sum(path.sends.put_messages for path in self.fast_paths)

    @property
    def fast_paths(self) -> tuple[FastPath, ...]:
        """Those of the lanes."""
        return tuple(lane.path for lane in self.lanes)

    @property
    def put_times(self) -> list[PutTimes]:
        """How long requests took, by the thread that answered them."""
        return [path.put_times for path in self.fast_paths]

    def waiting(self) -> tuple[int, int]:
        """Answers that wait for the disk, and pulls that wait for messages."""
        answers = sum(lane.waiting for lane in self.lanes)
        return answers, sum(len(lane.pulls.polling) for lane in self.lanes)

    def _lanes_accept(self, accepting: bool) -> None:
        for lane in self.lanes:
            lane.accepting = accepting


def _ignore(*_: object) -> None:
    """Slow pulls are not logged."""


def _archived_pulls(
    config: BrokerConfig, store: MessageStore, archive: OpenArchive
) -> ArchivedPulls:
    from congreve.broker.pull.archived_pulls import ArchivedPulls

    return ArchivedPulls(config, store, archive)
