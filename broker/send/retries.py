"""What is stored of a message that a group is to get again (RocketMQ: handleRetryAndDLQ)."""

import logging

import msgspec

from congreve.broker.delay.parking import park_for_level, without_times
from congreve.engine.config import StoreConfig
from congreve.records.message.fitting import OF_BROKERS, fitting, properties_size
from congreve.records.message.message import Record
from congreve.records.message.properties import (
    DELAY,
    RETRY_TOPIC,
    RETRY_TOPIC_UNCHECKED,
    UNIQ_KEY,
)
from congreve.records.message.topics import dlq_topic

logger = logging.getLogger(__name__)

OF_RETRIES = (DELAY, RETRY_TOPIC, RETRY_TOPIC_UNCHECKED)
"""What a dead letter can be without, if there is no room for it."""


def dead_letter(record: Record, group: str) -> Record:
    """The dead letter of a group, which waits for no time (RocketMQ: setDelayTimeLevel(0)).

    It fits whenever the message fitted without what a retry adds.
    """
    kept = dict(without_times(record).properties)
    if DELAY in kept:
        kept[DELAY] = "0"
    letter = msgspec.structs.replace(record, topic=dlq_topic(group), queue_id=0, properties=kept)
    return fitting(letter, optional=OF_BROKERS + OF_RETRIES) or letter


def retry_or_dead_letter(record: Record, group: str, config: StoreConfig) -> Record:
    """A message for the group's retry topic, or its dead letter.

    Properties that are nearly as large as a record allows leave no room for what parking adds. Then
    the retry is without some of the properties of brokers; if that is not enough, the message is a
    dead letter at once. Otherwise its consumer could never go on.
    """
    room = properties_size(park_for_level(record, config)) - properties_size(record)
    retry = fitting(record, room=room)
    if retry is not None:
        return retry
    logger.error(
        "message %s (%s) of group %s is a dead letter: its properties of %d bytes leave no room for"
        " a retry",
        record.properties.get(UNIQ_KEY),
        record.properties.get(RETRY_TOPIC),
        group,
        properties_size(record),
    )
    return dead_letter(record, group)
