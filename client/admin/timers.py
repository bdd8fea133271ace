"""Delayed messages: listed, counted by hour, taken back (RocketMQ 5: DefaultMQProducer)."""

from congreve.client.admin.brokers import Brokers
from congreve.client.errors import BrokerError, InvalidSettingError
from congreve.client.results import SendResult
from congreve.client.transport.instance import ClientInstance
from congreve.records.errors import RecordError
from congreve.records.message.recall_handle import RecallHandle
from congreve.remoting.messages.admin_bodies import DelayedCount, DelayedCounts, DelayedMessages
from congreve.remoting.messages.admin_headers import (
    DelayedMessagesRequestHeader,
    RecallMessageRequestHeader,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand

FOREVER_MS = (1 << 63) - 1


class TimerAdmin:
    """Delayed messages of all brokers: ``admin.timers`` of an AdminClient.

    RocketMQ's brokers do not answer these requests; version 5 can recall messages with a delivery
    time. Errors are those of AdminClient. (RocketMQ 5: DefaultMQProducer.recallMessage.)
    """

    def __init__(self, client: ClientInstance, brokers: Brokers) -> None:
        self._client = client
        self._brokers = brokers

    async def count_by_hour(self, *, begin_ms: int = 0, end_ms: int = FOREVER_MS) -> DelayedCounts:
        """How many messages are due in each hour, by delay level; level 0 are those with a
        delivery time. Times are in ms since 1970."""
        fields = DelayedMessagesRequestHeader(begin_ms=begin_ms, end_ms=end_ms).fields()
        answers = await self._ask(RequestCode.COUNT_DELAYED_MESSAGES, fields)
        totals: dict[tuple[int, int], int] = {}
        is_complete = True
        for answer in answers.values():
            body = DelayedCounts.decode(answer.body)
            is_complete = is_complete and body.is_complete
            for row in body.counts:
                key = row.hour_ms, row.level
                totals[key] = totals.get(key, 0) + row.count
        counts = [DelayedCount(*key, count) for key, count in sorted(totals.items())]
        return DelayedCounts(counts=counts, is_complete=is_complete)

    async def upcoming(
        self,
        *,
        count: int = 100,
        topic: str | None = None,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
    ) -> DelayedMessages:
        """The next `count` messages, in the order of their times, of one topic or of all.

        `is_complete` is false where a broker has more.
        """
        header = DelayedMessagesRequestHeader(
            begin_ms=begin_ms, end_ms=end_ms, count=count, topic=topic
        )
        answers = await self._ask(RequestCode.LIST_DELAYED_MESSAGES, header.fields())
        bodies = [DelayedMessages.decode(answer.body) for answer in answers.values()]
        messages = sorted(
            (message for body in bodies for message in body.messages),
            key=lambda message: message.due_ms,
        )
        is_complete = len(messages) <= count and all(body.is_complete for body in bodies)
        return DelayedMessages(messages=messages[:count], is_complete=is_complete)

    async def _ask(self, code: RequestCode, fields: dict[str, str]) -> dict[str, RemotingCommand]:
        try:
            return await self._brokers.ask_masters(code, fields)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            remark = "only brokers of Congreve list delayed messages"
            raise BrokerError(error.code, remark, error.address) from error

    async def recall(self, handle: str) -> None:
        """Recall a message; after that it is never delivered. `handle` is the recall_handle of
        a DelayedMessage.

        Raises BrokerError when the message was delivered or taken back before.
        """
        try:
            named = RecallHandle.decode(handle)
        except RecordError as error:
            raise InvalidSettingError(f"handle is {handle!r}: {error}") from error
        masters = await self._brokers.masters()
        address = masters.get(named.broker_name)
        if address is None:
            raise InvalidSettingError(
                f"handle is of broker {named.broker_name}, which is not registered"
            )
        header = RecallMessageRequestHeader(topic=named.topic, recall_handle=handle)
        await self._client.demand(address, RequestCode.RECALL_MESSAGE, header.fields())

    async def recall_sent(self, sent: SendResult, due_ms: int = 0) -> None:
        """Recall the timed message of a send's result. For a message with a delay level, RocketMQ 5
        also needs the time of delivery.
        """
        handle = RecallHandle(
            sent.queue.topic, sent.queue.broker_name, str(due_ms), sent.message_id
        )
        await self.recall(sent.recall_handle or handle.encode())
