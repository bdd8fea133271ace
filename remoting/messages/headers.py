"""Typed headers of requests and answers that clients use: sending, pulling, groups, transactions.

Each follows the RocketMQ class of its name; the codes that use it are in its docstring. What
administrators' tools and name servers use is in `admin_headers`.
"""

import msgspec

from congreve.remoting.messages.header import Header, Int32, Int64

# A name is only given to a field that the class declares itself, so V2 repeats its parent's.
_SHORT_NAMES = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
}


class SendMessageRequestHeader(Header):
    """SEND_MESSAGE, SEND_REPLY_MESSAGE. `born_timestamp` is in milliseconds."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False


class SendMessageRequestHeaderV2(SendMessageRequestHeader, rename=_SHORT_NAMES):
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2: the same under short names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False


class SendMessageResponseHeader(Header):
    """`msg_id` is the offset id, of a batch all of them with commas between; `recall_handle` is
    that of a timed message (RocketMQ 5)."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    recall_handle: str | None = None


class ReplyMessageRequestHeader(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT; the hosts are written ``ip:port``."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


class ConsumerSendMsgBackRequestHeader(Header):
    """CONSUMER_SEND_MSG_BACK; `offset` is the physical one."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class EndTransactionRequestHeader(Header):
    """END_TRANSACTION; `commit_or_rollback` is 8 commit, 12 rollback, 0 unknown."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(Header):
    """CHECK_TRANSACTION_STATE."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class PullMessageRequestHeader(Header):
    """PULL_MESSAGE, LITE_PULL_MESSAGE; `suspend_timeout_millis` is how long to hold it."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None


class PullMessageResponseHeader(Header):
    """Answer to a pull; all offsets are those of the queue."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64


class QueryConsumerOffsetRequestHeader(Header):
    """QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32


class UpdateConsumerOffsetRequestHeader(Header):
    """UPDATE_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class QueueRequestHeader(Header):
    """GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME.

    (RocketMQ: GetMaxOffsetRequestHeader, GetMinOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader.)
    """

    topic: str
    queue_id: Int32


class SearchOffsetRequestHeader(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP; `timestamp` is in milliseconds."""

    topic: str
    queue_id: Int32
    timestamp: Int64


class OffsetResponseHeader(Header):
    """Answer to QUERY_CONSUMER_OFFSET, GET_MAX_, GET_MIN_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP.

    (RocketMQ: QueryConsumerOffsetResponseHeader and three others of one field.)
    """

    offset: Int64


class TimestampResponseHeader(Header):
    """Answer to GET_EARLIEST_MSG_STORETIME; milliseconds, -1 for an empty queue.

    (RocketMQ: GetEarliestMsgStoretimeResponseHeader.)
    """

    timestamp: Int64


class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID; `offset` is the physical one."""

    offset: Int64


class AwaitTableChangeRequestHeader(Header):
    """AWAIT_TABLE_CHANGE; `member` is the slave's brokerId, `copied` what it has: a
    TableChanges.newest, or empty."""

    member: Int64
    copied: str = ""


class QueryMessageRequestHeader(Header):
    """QUERY_MESSAGE; `unique_key` is true where the key is a UNIQ_KEY."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key: bool = msgspec.field(default=False, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponseHeader(Header):
    """Answer to QUERY_MESSAGE."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class UnregisterClientRequestHeader(Header):
    """UNREGISTER_CLIENT."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(Header):
    """NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str
