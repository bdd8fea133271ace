"""Messages that say that a consumer's offset was corrected (RocketMQ: OffsetMovedEvent)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from congreve.base.clock import Clock
from congreve.base.limited_log import LimitedLog
from congreve.broker.config import BrokerConfig
from congreve.engine.read.reader import GetResult
from congreve.engine.store import MessageStore
from congreve.records.message import properties
from congreve.records.message.message import Record
from congreve.records.message.topics import OFFSET_MOVED_EVENT_TOPIC
from congreve.remoting.messages.bodies import OffsetMovedEvent
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.headers import PullMessageRequestHeader

if TYPE_CHECKING:
    # numpy is loaded by brokers that read tables only.
    from congreve.broker.pull.archived_pulls import ArchivedMessages

logger = logging.getLogger(__name__)


class OffsetMovedEvents:
    """Stores an event for each pull whose offset is not in its queue, and logs some of them.

    (RocketMQ: PullMessageProcessor.generateOffsetMovedEvent.)
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._corrections = LimitedLog(logger)

    def store(self, header: PullMessageRequestHeader, found: GetResult | ArchivedMessages) -> None:
        """Store an OFFSET_MOVED_EVENT message."""
        queue = MessageQueue(
            topic=header.topic, broker_name=self._config.broker_name, queue_id=header.queue_id
        )
        event = OffsetMovedEvent(
            consumer_group=header.consumer_group,
            message_queue=queue,
            offset_request=header.queue_offset,
            offset_new=found.next_offset,
        )
        self._corrections.warning("offset of %s corrected: %s", header.consumer_group, event)
        record = Record(
            topic=OFFSET_MOVED_EVENT_TOPIC,
            body=event.encode(),
            properties={
                properties.TAGS: header.consumer_group,
                properties.KEYS: header.consumer_group,
            },
            born_timestamp=self._clock.now(),
            born_host=self._config.store_host,
            store_host=self._config.store_host,
        )
        put = self._store.put(record)
        logger.debug("offset moved event: %s", put.status)
