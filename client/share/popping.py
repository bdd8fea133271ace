"""Asks a broker for messages and reads its answer (RocketMQ 5: processPopResponse)."""

import time
import uuid
from collections import deque
from collections.abc import Collection, Mapping

import msgspec

from congreve.client.consumer.group_client import GroupClient
from congreve.client.errors import BrokerError
from congreve.client.message import MessageQueue, ReceivedMessage
from congreve.client.receipt import Receipt
from congreve.client.received import PulledRecords
from congreve.client.settings import ConsumeFrom
from congreve.client.subscription import Subscription
from congreve.client.transport.route import MASTER_ID
from congreve.records.message.pop_handle import PopHandle, PoppedFrom
from congreve.records.message.pop_offsets import (
    PoppedMessage,
    PoppedQueue,
    decode_message_offsets,
    decode_order_counts,
    decode_start_offsets,
)
from congreve.records.message.properties import POP_CK
from congreve.remoting.errors import HeaderError, RemotingError
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.pop_headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)

ALL_QUEUES = -1
"""The queue id of a pop that takes messages of any queue."""
LATE_S = 10.0
"""How much later than asked for a broker may answer (RocketMQ 5: PopRequest)."""
LOST_MAX = 64
"""Ordered pops of a queue whose answers were lost, and which are asked again."""
_NOTHING = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL)


class Popped(msgspec.Struct):
    """The answer to a pop: stored records, and a receipt for each (RocketMQ 5: PopResult)."""

    queue: MessageQueue
    body: bytes
    receipts: list[Receipt]
    attempts: Mapping[PoppedQueue | PoppedMessage, int] = {}
    """How often messages of ordered pops were handed out before."""

    def messages(
        self, subscription: Subscription, namespace: str | None
    ) -> tuple[list[ReceivedMessage], list[Receipt]]:
        """The messages, and the receipts of those whose tags only share a hash with the wanted
        ones. Raises RecordError when a record is damaged, HeaderError when a record has no
        receipt."""
        unmatched = {
            (each.handle.kind, each.handle.queue_id, each.handle.offset): each
            for each in self.receipts
        }
        records = PulledRecords(self.body, tags=subscription.tags, namespace=namespace)
        messages = records.messages(self.queue)
        for message in messages:
            place = (PoppedFrom.TOPIC, message.stored_queue_id, message.queue_offset)
            if handle := message.properties.get(POP_CK):
                again = PopHandle.decode(handle)
                place = (again.kind, again.queue_id, again.offset)
            receipt = unmatched.pop(place, None)
            if receipt is None:
                raise HeaderError(f"the answer to a pop has no offset for its {message}")
            message.hand_out(msgspec.structs.replace(message.queue, queue_id=place[1]), receipt)
            for _ in range(self._attempts_of(PoppedMessage(*place))):
                message.count_attempt()
        return messages, list(unmatched.values())

    def _attempts_of(self, place: PoppedMessage) -> int:
        of_queue = self.attempts.get(PoppedQueue(place.kind, place.queue_id), 0)
        return self.attempts.get(place, of_queue)


class Popper:
    """Asks for messages of the topics of a consumer; `orderly`, for those that are next in their
    queues.

    Its methods raise BrokerError when the broker refuses, RemotingError when it does not answer.
    (RocketMQ 5: DefaultMQPushConsumerImpl.popMessage.)
    """

    def __init__(
        self,
        client: GroupClient,
        subscriptions: dict[str, Subscription],
        invisible_s: float,
        consume_from: ConsumeFrom,
        *,
        orderly: bool = False,
    ) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._invisible_s = invisible_s
        self._from_end = consume_from is not ConsumeFrom.FIRST_OFFSET
        self._orderly = orderly
        self._lost: dict[MessageQueue, deque[str]] = {}
        self.popped_ms: dict[MessageQueue, int] = {}
        """When each queue was popped last, in ms since 1970."""

    async def pop(
        self, queue: MessageQueue, count: int, wait_s: float, invisible_s: float | None = None
    ) -> Popped | None:
        """Take up to `count` messages; None when the broker had none in `wait_s` seconds."""
        client, subscription = self._client, self._subscriptions[queue.topic]
        now_ms = self.popped_ms[queue] = int(time.time() * 1000)
        if invisible_s is None:
            invisible_s = self._invisible_s
        attempt_id = self._attempt(queue)
        header = PopMessageRequestHeader(
            consumer_group=client.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            max_msg_nums=count,
            invisible_time=int(invisible_s * 1000),
            poll_time=int(wait_s * 1000),
            init_mode=int(self._from_end),
            born_time=now_ms,
            exp_type=subscription.kind,
            exp=subscription.expression,
            order=self._orderly,
            attempt_id=attempt_id,
        )
        code, fields = RequestCode.POP_MESSAGE, header.fields()
        try:
            answer, address = await self._ask(queue, code, fields, wait_s)
        except RemotingError:
            if attempt_id is not None:
                self._lost.setdefault(queue, deque(maxlen=LOST_MAX)).append(attempt_id)
            raise
        if answer.code in _NOTHING:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return self._read(answer, queue)

    def _attempt(self, queue: MessageQueue) -> str | None:
        """The id of an ordered pop. With that of a pop whose answer was lost the broker hands out
        the same messages again; until then they hold up their queues."""
        if not self._orderly:
            return None
        lost = self._lost.get(queue)
        return lost.popleft() if lost else uuid.uuid4().hex

    def keep_only(self, queues: Collection[MessageQueue]) -> None:
        """Forget other queues: this consumer pops them no longer."""
        for table in (self._lost, self.popped_ms):
            for queue in table.keys() - set(queues):
                del table[queue]

    async def await_messages(self, queue: MessageQueue, wait_s: float) -> bool:
        """Wait up to `wait_s` seconds until a pop would find a message; take none."""
        header = NotificationRequestHeader(
            consumer_group=self._client.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            poll_time=int(wait_s * 1000),
            born_time=int(time.time() * 1000),
            order=self._orderly,
        )
        code, fields = RequestCode.NOTIFICATION, header.fields()
        answer, address = await self._ask(queue, code, fields, wait_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return NotificationResponseHeader.read(answer).has_msg

    async def _ask(
        self, queue: MessageQueue, code: int, fields: dict[str, str], wait_s: float
    ) -> tuple[RemotingCommand, str]:
        client = self._client
        address = client.routes.address_to_read(queue.broker_name, MASTER_ID)
        timeout_s = client.timeout_s + wait_s + LATE_S * (wait_s > 0)
        return await client.ask(address, code, fields, timeout_s=timeout_s), address

    def _read(self, answer: RemotingCommand, queue: MessageQueue) -> Popped:
        header = PopMessageResponseHeader.read(answer)
        starts = decode_start_offsets(header.start_offset_info or "")
        due = time.monotonic() + header.invisible_time / 1000
        receipts = []
        for place, offsets in decode_message_offsets(header.msg_offset_info or "").items():
            for offset in offsets:
                handle = PopHandle(
                    starts.get(place, offset),
                    header.pop_time,
                    header.invisible_time,
                    header.revive_qid,
                    place.kind,
                    queue.broker_name,
                    place.queue_id,
                    offset,
                )
                receipts.append(Receipt(handle, queue.topic, due))
        attempts = decode_order_counts(header.order_count_info or "")
        return Popped(queue, answer.body, receipts, attempts)
