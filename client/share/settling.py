"""Tells brokers what became of the messages that they handed out (RocketMQ 5:
MQClientAPIImpl.ackMessageAsync, batchAckMessageAsync, changeInvisibleTimeAsync)."""

import asyncio
import time
from collections.abc import Iterable

from congreve.base.errors import CongreveError
from congreve.client.consumer.group_client import GroupClient
from congreve.client.errors import BrokerError
from congreve.client.receipt import Receipt
from congreve.client.transport.route import MASTER_ID
from congreve.records.message.pop_handle import PopHandle
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.pop_bodies import BatchAck, BatchAckMessageRequestBody
from congreve.remoting.messages.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)

BATCH_MAX = 1024
"""Maximum number of messages in a request."""
TOGETHER = 64
"""Maximum number of extensions of a call that wait for their answers."""


class Settling:
    """Acknowledges and extends messages; acknowledgements that come while a broker has not answered
    yet share the next request to it.

    Methods raise BrokerError when the broker refuses, RemotingError when it does not answer; the
    message is not settled then, and may be tried again. (RocketMQ 5: MQClientAPIImpl.)
    """

    def __init__(self, client: GroupClient) -> None:
        self._client = client
        self._waiting: dict[str, list[tuple[list[Receipt], asyncio.Future[None]]]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}

    async def ack(self, receipts: Iterable[Receipt]) -> None:
        """Acknowledge messages; those that are settled count as done."""
        receipts = list(dict.fromkeys(receipts))
        while busy := {each.pending for each in receipts if each.pending is not None}:
            await asyncio.wait(busy)
        by_broker: dict[str, list[Receipt]] = {}
        for receipt in receipts:
            if not receipt.settled:
                by_broker.setdefault(receipt.handle.broker_name, []).append(receipt)
        sent = [self._enqueue(broker, each) for broker, each in by_broker.items()]
        # A cancelled caller takes nothing from the others in the same request.
        results = await asyncio.gather(*map(asyncio.shield, sent), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _enqueue(self, broker_name: str, receipts: list[Receipt]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for receipt in receipts:
            receipt.pending = done
        self._waiting.setdefault(broker_name, []).append((receipts, done))
        if broker_name not in self._senders:
            self._senders[broker_name] = asyncio.create_task(self._send_all(broker_name))
        return done

    async def _send_all(self, broker_name: str) -> None:
        waiting = self._waiting[broker_name]
        try:
            while waiting:
                count = size = 0
                while count < len(waiting) and (not count or size < BATCH_MAX):
                    size += len(waiting[count][0])
                    count += 1
                await self._send(broker_name, waiting[:count])
                del waiting[:count]
        finally:
            for receipts, done in waiting:
                _release(receipts, done, RemotingError("the consumer ended"))
            del self._senders[broker_name]

    async def _send(
        self, broker_name: str, taken: list[tuple[list[Receipt], asyncio.Future[None]]]
    ) -> None:
        receipts = [receipt for each, _ in taken for receipt in each]
        failure: CongreveError | None = None
        try:
            if len(receipts) == 1:
                await self._ack_one(receipts[0])
            else:
                await self._ack_many(broker_name, receipts)
        except CongreveError as error:
            failure = error
        for each, done in taken:
            _release(each, done, failure)

    async def _ack_one(self, receipt: Receipt) -> None:
        handle = receipt.handle
        header = AckMessageRequestHeader(
            consumer_group=self._client.group,
            topic=handle.kind.topic(self._client.group, receipt.topic),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=handle.offset,
        )
        address = self._address(handle.broker_name)
        await self._client.demand(address, RequestCode.ACK_MESSAGE, header.fields())

    async def _ack_many(self, broker_name: str, receipts: list[Receipt]) -> None:
        acks = batch_acks(self._client.group, receipts)
        body = BatchAckMessageRequestBody(broker_name=broker_name, acks=acks).encode()
        address = self._address(broker_name)
        try:
            await self._client.demand(address, RequestCode.BATCH_ACK_MESSAGE, body=body)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            await asyncio.gather(*map(self._ack_one, receipts))

    async def extend(self, receipt: Receipt, seconds: float, *, settles: bool = False) -> None:
        """Let the message come again `seconds` from now, and not when it was to; with `settles` it
        is no longer this consumer's. Does nothing once it is settled."""
        while receipt.pending is not None:
            await asyncio.wait([receipt.pending])
        if receipt.settled:
            return
        receipt.pending = done = asyncio.get_running_loop().create_future()
        try:
            await self._change(receipt, seconds)
            receipt.settled = settles
        finally:
            receipt.pending = None
            done.set_result(None)

    async def extend_all(
        self, receipts: Iterable[Receipt], seconds: float, *, settles: bool = False
    ) -> None:
        """extend() for each; all are tried before an error is raised."""
        rest = list(receipts)
        failures: list[BaseException] = []
        while rest:
            now, rest = rest[:TOGETHER], rest[TOGETHER:]
            done = await asyncio.gather(
                *(self.extend(each, seconds, settles=settles) for each in now),
                return_exceptions=True,
            )
            failures += [each for each in done if each is not None]
        if failures:
            raise failures[0]

    async def _change(self, receipt: Receipt, seconds: float) -> None:
        handle = receipt.handle
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self._client.group,
            topic=handle.kind.topic(self._client.group, receipt.topic),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=handle.offset,
            invisible_time=int(seconds * 1000),
        )
        code, asked = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, time.monotonic()
        address = self._address(handle.broker_name)
        answer = await self._client.demand(address, code, header.fields())
        changed = ChangeInvisibleTimeResponseHeader.read(answer)
        receipt.due = asked + seconds
        # The message is alone in its new handle, so its pop starts at it.
        receipt.handle = handle._replace(
            start_offset=handle.offset,
            pop_ms=changed.pop_time,
            invisible_ms=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
        )

    def _address(self, broker_name: str) -> str:
        return self._client.routes.address_to_read(broker_name, MASTER_ID)


def _release(
    receipts: list[Receipt], done: asyncio.Future[None], failure: CongreveError | None
) -> None:
    """The broker has answered, or will not: the receipts are settled without a failure."""
    for receipt in receipts:
        receipt.pending = None
        receipt.settled = failure is None
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


def batch_acks(group: str, receipts: Iterable[Receipt]) -> list[BatchAck]:
    """The receipts as bit sets, one for each pop and queue. Brokers find a pop by the offset at
    which it started, so a bit set starts there, too."""
    pops: dict[tuple[str, PopHandle], list[int]] = {}
    for receipt in receipts:
        handle = receipt.handle
        pop = (receipt.topic, handle._replace(offset=handle.start_offset))
        pops.setdefault(pop, []).append(handle.offset)
    return [
        BatchAck.of(
            offsets,
            start_offset=handle.start_offset,
            consumer_group=group,
            topic=topic,
            retry=str(handle.kind.value),
            queue_id=handle.queue_id,
            revive_queue_id=handle.revive_queue_id,
            pop_time=handle.pop_ms,
            invisible_time=handle.invisible_ms,
        )
        for (topic, handle), offsets in pops.items()
    ]
