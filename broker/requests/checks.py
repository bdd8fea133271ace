"""The checks of a send's header, and the fields of every answer to a send.

RocketMQ: AbstractSendMessageProcessor.
"""

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.name_rules import forbidden_for_producers, topic_name_fault
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.broker.requests.message_types import type_fault, type_of
from congreve.engine.config import StoreConfig
from congreve.engine.results import PutStatus
from congreve.records.errors import RecordError
from congreve.records.message import properties
from congreve.records.message.property_codec import decode_properties
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from congreve.remoting.transport.connection import Connection

SYS_FLAG_UNIT = 1
SYS_FLAG_UNIT_SUB = 2
# From this version on (V3_4_9) requests have a limit of attempts of their own.
MAX_RECONSUME_TIMES_VERSION = 121

_PUT_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}


def put_code(status: PutStatus) -> ResponseCode:
    """The response code for a status of the store; SYSTEM_ERROR for every other status."""
    return _PUT_CODES.get(status, ResponseCode.SYSTEM_ERROR)


def region_fields(config: BrokerConfig) -> dict[str, str]:
    """Ext fields of every answer to a send; Java clients fail without them."""
    return {
        properties.MSG_REGION: config.region_id,
        properties.TRACE_SWITCH: "true" if config.trace_on else "false",
    }


def attempts_of(
    group: SubscriptionGroupConfig, request: RemotingCommand, max_reconsume_times: int | None
) -> int:
    """Deliveries of a message before the dead-letter topic: the group's, or the request's limit."""
    if request.version >= MAX_RECONSUME_TIMES_VERSION and max_reconsume_times is not None:
        return max_reconsume_times
    return group.retry_max_times


class SendChecks:
    """Checks a send's header before reading its message; creates topics if that is allowed.

    (RocketMQ: AbstractSendMessageProcessor.msgCheck.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        store_config: StoreConfig,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._store_config = store_config
        self._clock = clock

    def check(
        self, header: SendMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> None:
        """Raises RefusedError with the code and remark of the first check that fails."""
        config, topic = self._config, header.topic
        start = config.start_accept_send_request_time_stamp
        if self._clock.now() < start:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {start} (ms)"
            )
        if not config.writable and self._topics.is_order_topic(topic):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending message is forbidden"
                f" (brokerPermission {config.broker_permission}, order topic[{topic}])",
            )
        fault = topic_name_fault(topic)
        if fault is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, fault)
        if forbidden_for_producers(topic):
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden"
            )
        known = self._topics.get(topic) or self._create(header)
        if connection.speaks_http2:
            self._check_type(known, header)
        queues = max(known.read_queue_nums, known.write_queue_nums)
        if header.queue_id >= queues:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, topic[{topic}] has {queues} queues"
                f" Producer: {connection.peer[0]}:{connection.peer[1]}",
            )
        if len(request.body) > self._store_config.max_message_size:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal, its body of {len(request.body)} bytes is over the limit"
                f" of {self._store_config.max_message_size} (maxMessageSize)",
            )

    def _check_type(self, topic: TopicConfig, header: SendMessageRequestHeader) -> None:
        """RocketMQ 5 lets its proxy check this; senders of remoting pass unchecked."""
        try:
            sent = type_of(decode_properties((header.properties or "").encode()))
        except RecordError as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        fault = type_fault(topic, sent)
        if fault is not None:
            raise RefusedError(ResponseCode.MESSAGE_TYPE_CONFLICT, fault)

    def _create(self, header: SendMessageRequestHeader) -> TopicConfig:
        is_retry = header.topic.startswith(RETRY_PREFIX)
        sys_flag = (SYS_FLAG_UNIT_SUB if is_retry else SYS_FLAG_UNIT) if header.unit_mode else 0
        created = self._topics.create_on_send(
            header.topic, header.default_topic, header.default_topic_queue_nums, sys_flag
        )
        if created is None and is_retry:
            created = self._topics.create_internal(header.topic, 1, sys_flag=sys_flag, on_use=True)
        if created is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!"
                f" (defaultTopic[{header.default_topic}] gives no template)",
            )
        return created


def read_send_header(request: RemotingCommand) -> SendMessageRequestHeader:
    """Read the header with long or short names, by the request's code.

    Raises HeaderError when a field is missing or malformed.
    """
    if request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        return SendMessageRequestHeader.read(request)
    return SendMessageRequestHeaderV2.read(request)
