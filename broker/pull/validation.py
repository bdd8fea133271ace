"""What the event loop decides about a pull, and lanes copy (RocketMQ: PullMessageProcessor)."""

from collections.abc import Awaitable, Iterator

from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.filters import NotCompiledError
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.offsets import Commit
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.pull.checks import PullChecks
from congreve.broker.pull.lanes.pull_plan import PullPlan, PullPlans
from congreve.broker.pull.lanes.table import LanePullTable
from congreve.broker.pull.subscriptions import FLAG_SUBSCRIPTION, PullSubscriptions
from congreve.engine.read.gather import TagFilter
from congreve.engine.store import MessageStore
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.headers import PullMessageRequestHeader
from congreve.remoting.transport.connection import Connection

Asked = tuple[SubscriptionGroupConfig, MessageFilter]
"""The group of a pull, and the messages that it wants."""


class PullValidation:
    """Checks pulls, and keeps those that lanes may serve until something has changed.

    (RocketMQ: PullMessageProcessor.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        consumers: ConsumerManager,
        store: MessageStore,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._consumers = consumers
        self._store = store
        self._stats = stats
        self._subscriptions = PullSubscriptions(config, consumers, metadata.filters)
        self._checks = PullChecks(config, metadata, self._subscriptions)
        self.plans = PullPlans(
            config=config,
            groups=metadata.groups.table,
            topics=metadata.topics.table,
            consumers=consumers.groups,
        )
        for table in (metadata.topics, metadata.groups, consumers):
            table.listen(self.plans.note_change)

    def check(
        self, header: PullMessageRequestHeader, connection: Connection
    ) -> Asked | Awaitable[object]:
        """Group and filter of a pull, or what must end before the pull is checked again.

        That is the compilation of its filter, or the write of the group that it created. Raises
        RefusedError and TableFullError as PullChecks.
        """
        try:
            asked = self._checks.check(header, connection)
        except NotCompiledError as filtered:
            return self._subscriptions.compile(filtered)
        missing = self._metadata.missing(group=header.consumer_group)
        return asked if missing is None else missing

    def check_again(self, header: PullMessageRequestHeader, connection: Connection) -> Asked | None:
        """Group and filter of a pull that has waited; None if its filter must be compiled."""
        try:
            return self._checks.check(header, connection)
        except NotCompiledError:
            return None

    def keep(self, frame: bytes, header: PullMessageRequestHeader, asked: Asked) -> bool:
        """Let lanes serve this pull, and others like it; False if no lane can."""
        group, wanted = asked
        online = self._consumers.groups.get(group.group_name)
        registered = not header.sys_flag & FLAG_SUBSCRIPTION
        plan = PullPlan(
            group=group,
            topic=self._metadata.topics.table[header.topic],
            subscription=(
                self._consumers.find_subscription(group.group_name, header.topic)
                if registered
                else None
            ),
            message_model=online.message_model if online and registered else "",
            queue=self._store.queues.get(header.topic, header.queue_id),
            tags=None if wanted.tag_codes is None else TagFilter(wanted.tag_codes),
            records=wanted.records,
            counter=self._stats.pull_counter(group.group_name, header.topic),
        )
        return self.plans.keep(frame, plan)

    def follow_lane(self, known: LanePullTable) -> None:
        """Commit the offsets of pulls that a lane served; a slave has those of its master."""
        groups, topics = self._metadata.groups.table, self._metadata.topics.table

        def commits() -> Iterator[Commit]:
            for commit in known.take_commits():
                group, topic, _, _ = commit
                if not self._config.is_slave and group in groups and topic in topics:
                    yield commit

        self._metadata.offsets.follow(commits)
