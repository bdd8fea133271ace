"""Typed bodies of acknowledgements and of the broker's assignment of queues (RocketMQ 5).

Each follows the RocketMQ class of its name.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Self

import msgspec

from congreve.remoting.messages.body import Body, MessageQueue
from congreve.remoting.messages.header import Int32, Int64

_SHORT_NAMES = {
    "consumer_group": "c",
    "topic": "t",
    "retry": "r",
    "start_offset": "so",
    "queue_id": "q",
    "revive_queue_id": "rq",
    "pop_time": "pt",
    "invisible_time": "it",
    "bit_set": "b",
}


class BatchAck(Body, rename=_SHORT_NAMES):
    """Acknowledges messages that one pop took from one queue.

    `topic` is the one asked for, and `retry` the digit of the popped one: 1 and 2 are the group's
    retry topic under the two forms of its name. `pop_time` is in ms since 1970.
    """

    consumer_group: str = ""
    topic: str = ""
    retry: str = "0"
    start_offset: Int64 = 0
    queue_id: Int32 = 0
    revive_queue_id: Int32 = 0
    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    bit_set: bytes = b""
    """Bit 0 of the first byte is the message at `start_offset`, bit 1 the next one."""

    @classmethod
    def of(cls, offsets: Iterable[int], *, start_offset: int, **fields: Any) -> Self:
        """Acknowledge these offsets of a queue; `fields` are the others.

        `start_offset` is the handles': RocketMQ finds a pop by it.
        """
        bits = sum(1 << offset - start_offset for offset in set(offsets))
        bit_set = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        return cls(start_offset=start_offset, bit_set=bit_set, **fields)

    def offsets(self, first: int, end: int) -> Iterator[int]:
        """The acknowledged offsets from `first` to before `end`, in order.

        The work follows that range, whatever the length of the bit set.
        """
        start, bits = self.start_offset, self.bit_set
        for offset in range(max(first, start), min(end, start + 8 * len(bits))):
            index, bit = divmod(offset - start, 8)
            if bits[index] >> bit & 1:
                yield offset


_LONG_NAMES = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class BatchAckMessageRequestBody(Body):
    """Body of BATCH_ACK_MESSAGE; the members of an ack may have their long names, too."""

    broker_name: str | None = None
    acks: list[BatchAck] = []

    @classmethod
    def from_tree(cls, tree: Any) -> Self:
        acks = tree.get("acks") if isinstance(tree, dict) else None
        for ack in acks if isinstance(acks, list) else ():
            for long, short in _LONG_NAMES.items() if isinstance(ack, dict) else ():
                if long in ack:
                    ack.setdefault(short, ack.pop(long))
        return super().from_tree(tree)


class QueryAssignmentRequestBody(Body):
    """Body of QUERY_ASSIGNMENT."""

    topic: str
    consumer_group: str
    client_id: str | None = None
    strategy_name: str | None = None
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body):
    """A queue that a member reads; in `mode` POP its id -1 means all queues of the broker."""

    message_queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body):
    """Answer to QUERY_ASSIGNMENT; with None the member keeps what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


REQUEST_MODES = PULL, POP = "PULL", "POP"
"""How a group reads a topic (RocketMQ 5: MessageRequestMode)."""


class SetMessageRequestModeRequestBody(Body):
    """Body of SET_MESSAGE_REQUEST_MODE: how a group reads a topic, `mode` PULL or POP.

    With POP each member reads its own queues and those of the next `pop_share_queue_num` members;
    all queues if that is 0.
    """

    topic: str
    consumer_group: str
    mode: str = PULL
    pop_share_queue_num: Int32 = 0


class MessageRequestModeSerializeWrapper(Body):
    """Answer to GET_ALL_MESSAGE_REQUEST_MODE, and messageRequestMode.json: topic, then group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = (
        msgspec.field(default_factory=dict)
    )
