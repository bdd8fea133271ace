"""Sends, with every check (RocketMQ: SendMessageProcessor).

Ordinary sends are served by compiled code; what it does not know comes here, where all rules are.
"""

import random
from collections.abc import Callable, Mapping

from congreve.broker import transaction
from congreve.broker.batch import batch_fault
from congreve.broker.config import BrokerConfig
from congreve.broker.delay import park
from congreve.broker.durability import DurabilityGate
from congreve.broker.errors import RefusedError
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.sendchecks import SendChecks, put_code, read_send_header, region_fields
from congreve.broker.topics import (
    RETRY_PREFIX,
    TopicConfigManager,
    dlq_topic,
)
from congreve.broker.transactionservice import TransactionService
from congreve.engine.clock import Clock
from congreve.engine.results import PutResult, PutStatus
from congreve.engine.store import MessageStore
from congreve.records import properties
from congreve.records.errors import RecordError
from congreve.records.flags import SysFlag
from congreve.records.message import Record
from congreve.records.record import decode_properties
from congreve.remoting.bodies import TopicConfig
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.errors import HeaderError
from congreve.remoting.headers import (
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)

PROPERTIES_MAX = 32_767  # bytes
MULTI_TAG = "MULTI_TAG"
# From this version on (V3_4_9) a request's own limit of attempts counts.
MAX_RECONSUME_TIMES_VERSION = 121


class SendMessageProcessor:
    """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        store: MessageStore,
        gate: DurabilityGate,
        transactions: TransactionService,
        clock: Clock,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._store = store
        self._gate = gate
        self._transactions = transactions
        self._clock = clock
        self._checks = SendChecks(config, topics, store.config, clock)
        self._pick = pick

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """One message or a batch. None while the answer waits to be durable."""
        try:
            header = read_send_header(request)
            self._checks.check(header, request, connection)
            record, wait = self._record(header, request, connection)
            put = self._put(record, header, request)
            if put.status is not PutStatus.PUT_OK:
                raise RefusedError(put_code(put.status), self._why(put, request, record))
        except RefusedError as refused:
            return self._answer(request, refused.code, str(refused), {})
        except HeaderError as error:
            return self._answer(request, ResponseCode.SYSTEM_ERROR, str(error), {})
        answered = SendMessageResponseHeader(
            msg_id=put.message_ids, queue_id=record.queue_id, queue_offset=put.queue_offset
        )
        answer = self._answer(request, ResponseCode.SUCCESS, None, answered.fields())
        if wait and self._store.config.sync_flush and not request.is_oneway:
            self._gate.park(connection, answer.encode(), put.end)
            return None
        return answer

    def _put(
        self, record: Record, header: SendMessageRequestHeader, request: RemotingCommand
    ) -> PutResult:
        if header.batch:
            fault = batch_fault(record, request.body)
            if fault is not None:
                raise RefusedError(
                    ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {fault} is not possible"
                )
            return self._store.put_batch(record, bytes(request.body))
        now = self._clock.now()
        if transaction.is_half(record):
            park(record, self._store.config, now)  # refuses a time that its commit could not keep
            return self._transactions.prepare(record)
        if transaction.says_transaction(record.properties):
            record = transaction.without_transaction(record)
        return self._store.put(park(record, self._store.config, now))

    def _answer(
        self, request: RemotingCommand, code: int, remark: str | None, fields: dict[str, str]
    ) -> RemotingCommand:
        return request.reply(code, remark, fields | region_fields(self._config))

    def _record(
        self, header: SendMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> tuple[Record, bool]:
        """The record to store, and whether its sender waits for the disk."""
        stored = self._stored_properties(header)
        waits = stored.get(properties.WAIT, "true").lower() == "true"
        if not header.batch:
            stored.pop(properties.WAIT, None)
        topic = self._topics.table[header.topic]
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random_queue(topic)
        if header.topic.startswith(RETRY_PREFIX) and not header.batch:
            topic, queue_id = self._retry_target(header, request, topic, queue_id)
            if topic.topic_name != header.topic:
                # A dead letter is due at once; the reference parks it for its old delay first.
                stored.pop(properties.DELAY, None)
        sys_flag = header.sys_flag
        if topic.topic_filter_type == MULTI_TAG:
            sys_flag |= SysFlag.MULTI_TAGS
        return Record(
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
        ), waits

    def _stored_properties(self, header: SendMessageRequestHeader) -> dict[str, str]:
        text = (header.properties or "").encode()
        if len(text) > PROPERTIES_MAX:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal, its properties of {len(text)} bytes are over the limit"
                f" of {PROPERTIES_MAX}",
            )
        try:
            stored = decode_properties(text)
        except RecordError as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if transaction.says_transaction(stored) and self._config.reject_transaction_message:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden"
                " (rejectTransactionMessage)",
            )
        stored[properties.CLUSTER] = self._config.broker_cluster_name
        return stored

    def _random_queue(self, topic: TopicConfig) -> int:
        if topic.write_queue_nums < 1:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"topic[{topic.topic_name}] has no queue to write to"
            )
        return self._pick(topic.write_queue_nums)

    def _retry_target(
        self,
        header: SendMessageRequestHeader,
        request: RemotingCommand,
        topic: TopicConfig,
        queue_id: int,
    ) -> tuple[TopicConfig, int]:
        """The retry topic itself, or the dead-letter topic when all attempts are used up."""
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find(name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        attempts = group.retry_max_times
        if (
            request.version >= MAX_RECONSUME_TIMES_VERSION
            and header.max_reconsume_times is not None
        ):
            attempts = header.max_reconsume_times
        if (header.reconsume_times or 0) < attempts:
            return topic, queue_id
        return self._topics.create_internal(dlq_topic(name), 1), 0

    def _why(self, put: PutResult, request: RemotingCommand, record: Record) -> str:
        if put.status is PutStatus.SERVICE_NOT_AVAILABLE:
            return f"service not available now: {put.why}"
        if put_code(put.status) is ResponseCode.MESSAGE_ILLEGAL:
            return (
                f"the message is illegal ({put.status.name}): body of {len(request.body)} bytes"
                f" (limit {self._store.config.max_message_size}), {len(record.properties)}"
                f" properties (limit {PROPERTIES_MAX} bytes)"
            )
        return put.refusal
