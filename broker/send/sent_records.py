"""The record that a send becomes (RocketMQ: SendMessageProcessor, handleRetryAndDLQ)."""

import random
from collections.abc import Callable

from congreve.base.numbers import java_integer
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.requests.checks import attempts_of
from congreve.broker.requests.lite_bucket import queue_of_lite
from congreve.broker.send.reserved_properties import ReservedProperties
from congreve.broker.send.retries import dead_letter, retry_or_dead_letter
from congreve.broker.send.sent_puts import message_type
from congreve.engine.config import StoreConfig
from congreve.records.errors import RecordError
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message import half_messages, properties
from congreve.records.message.flags import SysFlag
from congreve.records.message.message import Record
from congreve.records.message.property_codec import decode_properties
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.bodies import TopicConfig
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeader
from congreve.remoting.transport.connection import Connection

MULTI_TAG = "MULTI_TAG"
NORMAL = "normal"
"""The type of messages that may have a priority, which chooses their queue."""


class SentRecords:
    """Makes the records of checked sends. (RocketMQ: SendMessageProcessor.asyncSendMessage.)"""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        store_config: StoreConfig,
        reserved: ReservedProperties,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._store_config = store_config
        self._reserved = reserved
        self._pick = pick

    def record(
        self, header: SendMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> tuple[Record, bool]:
        """The record to store, and whether its sender waits for the disk (WAIT).

        Raises RefusedError.
        """
        stored = self._stored_properties(header, request, connection)
        waits = stored.get(properties.WAIT, "true").lower() == "true"
        topic = self._topics.table[header.topic]
        queue_id = header.queue_id
        if queue_id < 0:
            lite = stored.get(properties.LITE_TOPIC)
            queue_id = (
                self._random_queue(topic)
                if lite is None
                else queue_of_lite(lite, topic.write_queue_nums)
            )
        if not header.batch and _priority(stored) >= 0:
            if message_type(stored) == NORMAL:
                queue_id = max(min(_priority(stored), topic.write_queue_nums - 1), 0)
            else:
                del stored[properties.PRIORITY]
        sys_flag = header.sys_flag
        if topic.topic_filter_type == MULTI_TAG:
            sys_flag |= SysFlag.MULTI_TAGS
        record = Record(
            topic=topic.topic_name,
            body=bytes(request.body),
            properties=stored,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.peer,
            store_host=self._config.store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if header.topic.startswith(RETRY_PREFIX):
            record = self._retry(record, header, request)
        return record, waits

    def _stored_properties(
        self, header: SendMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> dict[str, str]:
        text = (header.properties or "").encode()
        # What a consumer adds to its copy may be left out again.
        if len(text) > PROPERTIES_MAX and not header.topic.startswith(RETRY_PREFIX):
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal, its properties of {len(text)} bytes are over the limit"
                f" of {PROPERTIES_MAX}",
            )
        try:
            stored = decode_properties(text)
        except RecordError as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if half_messages.says_transaction(stored) and self._config.reject_transaction_message:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden"
                " (rejectTransactionMessage)",
            )
        stored = self._reserved.of_message(header.topic, stored, request, connection)
        # The handle of another message, which was popped and is sent on.
        stored.pop(properties.POP_CK, None)
        stored[properties.CLUSTER] = self._config.broker_cluster_name
        return stored

    def _random_queue(self, topic: TopicConfig) -> int:
        if topic.write_queue_nums < 1:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"topic[{topic.topic_name}] has no queue to write to"
            )
        return self._pick(topic.write_queue_nums)

    def _retry(
        self, record: Record, header: SendMessageRequestHeader, request: RemotingCommand
    ) -> Record:
        """The retry as it is stored, or the dead letter after the last attempt."""
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find(name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        attempts = attempts_of(group, request, header.max_reconsume_times)
        if record.reconsume_times < attempts:
            record = retry_or_dead_letter(record, name, self._store_config)
        else:
            record = dead_letter(record, name)
        if record.topic != header.topic:
            self._topics.create_internal(record.topic, 1)
        return record


def _priority(stored: dict[str, str]) -> int:
    """The priority of a message, below 0 without one (RocketMQ 5: Message.getPriority)."""
    number = java_integer(stored.get(properties.PRIORITY, ""), 32)
    return -1 if number is None else number
