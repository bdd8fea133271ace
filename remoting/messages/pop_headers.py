"""Typed headers of messages that a broker hands out and that are acknowledged one by one (POP).

Each follows the RocketMQ class of its name; the codes that use it are in its docstring. A
`queue_id` of -1 means all queues. `extra_info` is the text of a PopHandle (records). `offset` is
that of the queue. `topic` is the real one, so for what came again it is the group's retry topic.
"""

from congreve.remoting.messages.header import Header, Int32, Int64

NO_REMARK = "not set any response code"
"""RocketMQ's remark where a processor has set none."""


class PopMessageRequestHeader(Header):
    """POP_MESSAGE; the times are in milliseconds.

    `poll_time` is how long to hold the request after `born_time`; 0 there means now. `init_mode` is
    0 for a group that begins at the queue's first message, 1 at its end.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    init_mode: Int32
    born_time: Int64 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header):
    """Answer to POP_MESSAGE; a refusal has it too, with numbers only.

    `rest_num` is how many messages are left. The last three are texts of `pop_offsets` (records).
    """

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    rest_num: Int64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(Header):
    """ACK_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class ChangeInvisibleTimeRequestHeader(Header):
    """CHANGE_MESSAGE_INVISIBLETIME: the message comes again in `invisible_time` ms from now.

    With `suspend` (RocketMQ 5.5) that delivery does not count as another attempt.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool = False


class ChangeInvisibleTimeResponseHeader(Header):
    """Answer to CHANGE_MESSAGE_INVISIBLETIME; the new handle has these numbers."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0


class NotificationRequestHeader(Header):
    """NOTIFICATION: whether a pop would find messages; it is held as a pop is."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(Header):
    """Answer to NOTIFICATION; `polling_full`: too many requests are held already."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(Header):
    """POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(Header):
    """Answer to POLLING_INFO: how many pops are held for these queues."""

    polling_num: Int32 = 0
