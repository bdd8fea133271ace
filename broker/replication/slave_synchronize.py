"""Topics, groups, offsets and delay progress of a master (RocketMQ: SlaveSynchronize)."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from congreve.base.limited_log import LimitedLog
from congreve.broker.delay.service import DelayedMessages
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.replication.master_requests import MasterRequests
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.broker.replication.table_copies import HOLD_S
from congreve.engine.errors import StoreError
from congreve.engine.store import MessageStore
from congreve.records.message.topics import NEVER_UNUSED
from congreve.remoting.errors import RemotingError
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.bodies import (
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TableChanges,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.pop_bodies import MessageRequestModeSerializeWrapper

logger = logging.getLogger(__name__)

MODES_AGAIN_S = 60.0
"""Seconds after which a master that has no request modes is asked again."""
Offsets = dict[str, dict[int, int]]
_FAILURES = (RemotingError, ReplicationError, StoreError, msgspec.MsgspecError, ValueError)


T = TypeVar("T")
Read = tuple[dict[str, T], DataVersion]
"""The entries of a page, and the version of its table."""
RESTARTS_MAX = 5
"""How often a copy may begin again because the master's table has changed."""


async def _all_pages(
    master: MasterRequests,
    code: int,
    read: Callable[[bytes], Read[T]],
    known: DataVersion | None,
) -> Read[T] | None:
    """A table of the master in pages of one version; None if it is still the known one."""
    for _ in range(RESTARTS_MAX):
        found: dict[str, T] = {}
        version: DataVersion | None = None
        while True:
            body, total = await master.page(code, len(found), version)
            if version is None:
                version = msgspec.json.decode(body, type=_Version, strict=False).data_version
                if version == known:
                    return None
            entries, present = await asyncio.to_thread(read, body)
            if present != version:
                break
            found |= entries
            if total is None or len(found) >= total or not entries:
                return found, version
    raise ReplicationError(f"the master's table changes while it is copied (request {code})")


async def _offset_pages(master: MasterRequests) -> tuple[list[bytes], Offsets]:
    """The master's offsets, as encoded and as a table. It has no version: an offset that changes
    meanwhile is of the one or of the other moment, and copied again."""
    bodies: list[bytes] = []
    found: Offsets = {}
    first = 0
    while True:
        body, total = await master.page(RequestCode.GET_ALL_CONSUMER_OFFSET, first, None)
        page = (await asyncio.to_thread(ConsumerOffsetSerializeWrapper.decode, body)).offset_table
        bodies.append(body)
        found |= page
        first += len(page)
        if total is None or first >= total or not page:
            return bodies, found


class _Version(msgspec.Struct, rename="camel"):
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class DelayProgress(msgspec.Struct, frozen=True):
    """Offsets of the delay levels; they hold once this log has everything before `needs`.

    Deliveries after `log_end` are in the log itself. (RocketMQ: delayOffset.json.)
    """

    offsets: dict[int, int]
    log_end: int
    needs: int


class SlaveSynchronize:
    """Copies a master's tables each second, on the event loop, and what it announces at once.

    Topics and groups are replaced when their DataVersion differs; `remove_topic` removes the queues
    of a topic that the master has deleted before a physical offset. An offset is taken when the
    master's has changed, or is ahead at the first time: a slave keeps the offsets that consumers
    committed to it while its master was away. As long as `is_copy` returns False, this log may not
    be a copy of the master's, whose tables then belong to other messages: they are not copied.
    Filters are not copied: consumers send them to every broker with their heartbeats. With
    `only_shown` no offset is beyond what readers see of this log: the rest of it is taken later.
    (RocketMQ: SlaveSynchronize, each 10 s.)
    """

    def __init__(
        self,
        metadata: Metadata,
        delayed: DelayedMessages,
        store: MessageStore,
        master: Callable[[], MasterRequests | None],
        remove_topic: Callable[[str, int], bool],
        is_copy: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        only_shown: bool = False,
    ) -> None:
        self._metadata = metadata
        self._delayed = delayed
        self._store = store
        self._master = master
        self._remove_topic = remove_topic
        self._is_copy = is_copy
        self._now = monotonic
        self._changes: TableChanges | None = None  # announced, and not yet copied
        self._copied_all_at = 0.0
        self._deleted: dict[str, int] = {}  # topics, and a log end of the master without them
        self._made_again: dict[str, int] = {}  # the same for topics that may be there again
        self._offsets_text: list[bytes] = []
        self._theirs: Offsets = {}  # the master's offsets
        self._offsets: Offsets | None = None  # what was taken of them
        self._is_whole = True  # all of them
        self._only_shown = only_shown
        self._absent: dict[tuple[str, int], int] = {}  # queues, and a log end of the master
        self._topics_version: DataVersion | None = None
        self._seen: set[str] = set()  # topics that the master had at any time
        self._groups_version: DataVersion | None = None
        self._modes_text = b""
        self._modes_again_at = 0.0
        self._delay: DelayProgress | None = None
        self._announced = ""  # the newest change that the master has told
        self._copied = ""  # the same, once the tables are on this slave's disk
        self._pieces = Pieces()
        self._log = LimitedLog(logger)

    async def run(self) -> bool:
        """Copy what has changed; False from a master that does not answer, or has another log, or
        without one."""
        self._settle_delay()
        self.settle_offsets()
        changes, self._changes = self._changes, None
        master = self._master()
        if master is None:
            return False
        if not self._is_copy():
            self._restore_topics()
            return False
        announced = self._announced
        try:
            if changes is None or not await self._take_changes(changes):
                await self._take_all(master)
            await self._metadata.topics.file.saved()
            await self._metadata.groups.file.saved()
            await self._metadata.request_modes.file.saved()
        except _FAILURES as error:
            self._log.warning("this slave has not copied its master's tables: %s", error)
            self._restore_topics()
            return False
        self._copied = announced
        return True

    async def _take_all(self, master: MasterRequests) -> None:
        self._copied_all_at = self._now()
        # A topic with records here is in a table that the master sends now, or was deleted there.
        present = set(self._store.queues.topics())
        await self._take_topics(master)
        await self._take_offsets(master)
        await self._take_delay(master)
        await self._take_groups(master)
        await self._take_modes(master)
        await self._remove_deleted(present, master)

    async def _take_changes(self, changes: TableChanges) -> bool:
        """Take the topics that have changed since the last copy; False if that is not all that is
        to be copied now."""
        topics, version = changes.topics, changes.topics_version
        if topics is None or version is None or self._topics_version is None:
            return False
        if self._now() - self._copied_all_at >= HOLD_S:  # offsets, too
            return False
        await self._pieces.run(self._metadata.topics.follow_changes(topics, version))
        self._seen |= topics.keys()
        self._topics_version = version
        return True

    async def wait_for_change(self, member: int) -> bool:
        """Wait for a change of the master's topics and groups, or until offsets are to be copied.

        It reports that `member`, this slave, has what run() has copied. False from a master that
        does not say when they change.
        """
        master = self._master()
        if master is None:
            return False
        try:
            changes = await master.table_changes(member, self._copied)
        except _FAILURES:
            return False
        self._announced, self._changes = changes.newest, changes
        self._made_again |= changes.deleted_topics
        return True

    def _restore_topics(self) -> None:
        """Serve topics whose messages are here, but that the master made just before it died."""
        lost = {
            topic: max(queue.queue_id for queue in self._store.queues.queues_of(topic)) + 1
            for topic in self._store.queues.topics()
            if topic not in self._metadata.topics.table
            and topic not in self._seen
            and topic not in NEVER_UNUSED
        }
        if lost and self._metadata.topics.restore(lost):
            self._topics_version = None  # the master's table replaces what was restored

    async def _take_topics(self, master: MasterRequests) -> None:
        def read(body: bytes) -> Read[TopicConfig]:
            wrapper = TopicConfigSerializeWrapper.decode(body)
            return wrapper.topic_config_table, wrapper.data_version

        code = RequestCode.GET_ALL_TOPIC_CONFIG
        taken = await _all_pages(master, code, read, self._topics_version)
        if taken is not None:
            table, version = taken
            await self._pieces.run(self._metadata.topics.follow_master(table, version))
            self._seen |= table.keys()
            self._topics_version = version

    async def _remove_deleted(self, present: set[str], master: MasterRequests) -> None:
        """Remove the queues of deleted topics, when this log has all of their records."""
        topics = self._metadata.topics
        gone = {
            topic
            for topic in present - topics.table.keys() - NEVER_UNUSED
            if not topics.is_system_topic(topic)
        }
        self._deleted = {topic: end for topic, end in self._deleted.items() if topic in gone}
        if gone - self._deleted.keys():
            end = (await master.span()).end
            self._deleted = {topic: self._deleted.get(topic, end) for topic in gone}
        for ends in (self._made_again, self._deleted):
            for topic, end in list(ends.items()):
                if self._store.log.max_offset >= end and self._remove_topic(topic, end):
                    del ends[topic]
                    logger.warning(
                        "topic %s was deleted at the master: its queues are removed", topic
                    )

    async def _take_groups(self, master: MasterRequests) -> None:
        def read(body: bytes) -> Read[SubscriptionGroupConfig]:
            wrapper = SubscriptionGroupWrapper.decode(body)
            return wrapper.subscription_group_table, wrapper.data_version

        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        taken = await _all_pages(master, code, read, self._groups_version)
        if taken is not None:
            table, version = taken
            await self._pieces.run(self._metadata.groups.follow_master(table, version))
            self._groups_version = version

    async def _take_modes(self, master: MasterRequests) -> None:
        """Take the request modes; RocketMQ 4.9 does not know the request, so it is not asked
        often."""
        if self._now() < self._modes_again_at:
            return
        try:
            body = await master.table(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        except ReplicationError:
            self._modes_again_at = self._now() + MODES_AGAIN_S
            return
        if body != self._modes_text:
            wrapper = MessageRequestModeSerializeWrapper.decode(body)
            self._metadata.request_modes.follow_master(wrapper)
            self._modes_text = body

    async def _take_offsets(self, master: MasterRequests) -> None:
        bodies, table = await _offset_pages(master)
        if bodies == self._offsets_text:
            return
        self._theirs, self._offsets_text, self._is_whole = table, bodies, False
        self.settle_offsets()
        if -1 in self._absent.values():
            end = (await master.span()).end
            self._absent = {key: end if at < 0 else at for key, at in self._absent.items()}
            self.settle_offsets()

    def settle_offsets(self) -> None:
        """Take the offsets of the last copy that were not taken yet, as far as possible."""
        if self._is_whole:
            return
        self._is_whole = True
        table = self._shown_of(self._theirs) if self._only_shown else self._theirs
        self._metadata.offsets.follow_master(table, self._offsets)
        self._offsets = table

    def _shown_of(self, theirs: Offsets) -> Offsets:
        """The offsets, none beyond what readers see of its queue.

        A queue that is not here has expired once this log has what the master's had: its offset is
        taken as it is.
        """
        absent, self._absent = self._absent, {}
        taken: Offsets = {}
        for key, offsets in theirs.items():
            topic = key.partition("@")[0]
            mine = taken[key] = {}
            for queue_id, offset in offsets.items():
                queue = self._store.queues.find(topic, queue_id)
                if queue is not None and queue.max:
                    mine[queue_id] = min(offset, self._store.log.end_of(queue))
                    self._is_whole &= mine[queue_id] == offset
                    continue
                needs = absent.get((key, queue_id), -1)
                if offset == 0 or 0 <= needs <= self._store.log.shown_end:
                    mine[queue_id] = offset
                else:
                    self._absent[key, queue_id] = needs
                    self._is_whole = False
        return taken

    async def _take_delay(self, master: MasterRequests) -> None:
        """Ask for the progress of delay levels; it is taken when this log has caught up."""
        if self._delay is not None:
            return
        log_end = self._store.log.max_offset
        body = await master.table(RequestCode.GET_ALL_DELAY_OFFSET)
        offsets = DelayOffsetSerializeWrapper.decode(body).offset_table
        needs = (await master.span()).end
        self._delay = DelayProgress(offsets, log_end, needs)
        self._settle_delay()

    def _settle_delay(self) -> None:
        progress = self._delay
        if progress is not None and self._store.log.max_offset >= progress.needs:
            self._delayed.follow_master(progress.offsets, progress.log_end)
            self._delay = None
