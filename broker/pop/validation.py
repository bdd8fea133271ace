"""What the event loop has checked about a pop, and lanes copy (RocketMQ: PopMessageProcessor)."""

from congreve.broker.figures.stats import BrokerStats
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.pop.lanes.pop_plan import PopPlan, pop_key
from congreve.broker.pop.service import Pops, retry_topics
from congreve.broker.pop.taking import Asked, by_priority_percent
from congreve.engine.read.gather import TagFilter
from congreve.engine.store import MessageStore
from congreve.records.message.pop_handle import PoppedFrom
from congreve.records.message.topics import retry_topic
from congreve.remoting.messages.pop_headers import PopMessageRequestHeader


class PopValidation:
    """Keeps the pops that lanes may serve until something has changed.

    (RocketMQ: PopMessageProcessor.)
    """

    def __init__(
        self, metadata: Metadata, store: MessageStore, stats: BrokerStats, pops: Pops
    ) -> None:
        self._groups = metadata.groups.table
        self._topics = metadata.topics.table
        self._store = store
        self._stats = stats
        self._pops = pops

    def keep(self, header: PopMessageRequestHeader, asked: Asked) -> None:
        """Let lanes serve pops like this one, which has passed all checks and made its windows."""
        if asked.ordered:
            return
        key = pop_key(
            header.consumer_group, header.topic, header.queue_id, header.exp, header.exp_type
        )
        if key is None or self._pops.plans.has(key):
            return
        group, topic = self._groups.get(asked.group), self._topics[asked.topic]
        waiting = self._pops.waiting.counter((asked.group, asked.topic))
        if group is None or waiting is None:
            return
        percent = by_priority_percent(topic, group)
        if 0 < percent < 100:
            return
        again = {name: self._topics.get(name) for name in retry_topics(asked.group, asked.topic)}
        own = [(asked.group, asked.topic, queue_id) for queue_id in asked.queue_ids]
        coming = [
            (asked.group, name, queue_id)
            for name, settings in again.items()
            if settings is not None
            for queue_id in range(settings.read_queue_nums)
        ]
        wanted = asked.wanted
        plan = PopPlan(
            group=group,
            topic=topic,
            retry_topics=again,
            places=own + coming,
            windows=[
                *(self._pops.window(*place, False) for place in own),
                *(self._pops.in_flight.find(*place) for place in coming),
            ],
            queues=[self._store.queues.get(name, number) for _, name, number in own + coming],
            kinds=[*(0 for _ in own), *(_kind(*place) for place in coming)],
            retries=len(coming),
            by_priority=percent > 0,
            tags=None if wanted.tag_codes is None else TagFilter(wanted.tag_codes),
            records=wanted.records,
            counter=self._stats.pull_counter(asked.group, asked.topic),
            waiting=waiting,
        )
        self._pops.plans.keep(key, plan)


def _kind(group: str, topic: str, queue_id: int) -> int:
    """The kind of a queue with what comes again; -1: only the event loop takes from it."""
    return -1 if queue_id > 0 or topic == retry_topic(group) else int(PoppedFrom.of(topic))
