"""The processors of pops, composed."""

from congreve.base.clock import Clock
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.pop.ack_processor import AckMessageProcessor
from congreve.broker.pop.checks import PopChecks
from congreve.broker.pop.processor import PopMessageProcessor
from congreve.broker.pop.service import Pops
from congreve.broker.pop.taking import PopTaking
from congreve.broker.pop.validation import PopValidation
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.pull.subscriptions import PullSubscriptions
from congreve.engine.store import MessageStore


def pop_processors(
    *,
    config: BrokerConfig,
    metadata: Metadata,
    consumers: ConsumerManager,
    store: MessageStore,
    stats: BrokerStats,
    clock: Clock,
    pops: Pops,
    group_commit: GroupCommit,
    quota: PullQuota,
) -> tuple[PopMessageProcessor, AckMessageProcessor]:
    """Those of one broker, whose answers wait for `group_commit`."""
    pops.journal.group_commit = group_commit
    subscriptions = PullSubscriptions(config, consumers, metadata.filters)
    checks = PopChecks(config, metadata, subscriptions, clock)
    taking = PopTaking(metadata, store, stats, pops, clock, config)
    return (
        PopMessageProcessor(
            pops,
            checks,
            taking,
            PopValidation(metadata, store, stats, pops),
            subscriptions,
            quota,
            clock,
        ),
        AckMessageProcessor(pops, checks, store, clock),
    )
