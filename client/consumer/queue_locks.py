"""Broker locks that let only one member of a group read a queue (RocketMQ: RebalanceImpl.lock,
lockAll)."""

import time
from collections.abc import Iterable, Sequence

from congreve.base.errors import CongreveError
from congreve.client.consumer.consumer import PullConsumer
from congreve.client.logs import Log
from congreve.client.message import MessageQueue
from congreve.client.pull.process_queue import ProcessQueue
from congreve.remoting.messages.bodies import LockBatchRequestBody, LockBatchResponseBody
from congreve.remoting.messages.codes import RequestCode

log = Log(__name__)


class QueueLocks:
    """Locks of `client` on the brokers of the queues; a lock lasts a minute unless it is
    renewed. (RocketMQ: RebalanceImpl.lock.)
    """

    def __init__(self, client: PullConsumer) -> None:
        self._client = client

    async def lock(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Lock queues; returns those that this client holds now. Queues of an unreachable broker
        are not locked."""
        held: set[MessageQueue] = set()
        for broker_name, body in self._bodies(queues):
            try:
                address = self._client.routes.address(broker_name)
                answer = await self._client.demand(
                    address, RequestCode.LOCK_BATCH_MQ, body=body.encode()
                )
                held.update(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
            except CongreveError as error:
                log.warning("locking queues failed", broker=broker_name, error=error)
        return held

    async def unlock(self, queues: Sequence[MessageQueue]) -> None:
        """Unlock queues. A failure is logged: the broker drops the lock after a minute."""
        for broker_name, body in self._bodies(queues):
            try:
                address = self._client.routes.address(broker_name)
                await self._client.demand(address, RequestCode.UNLOCK_BATCH_MQ, body=body.encode())
            except CongreveError as error:
                log.warning("unlocking queues failed", broker=broker_name, error=error)

    async def renew(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Renew all locks, and record which of them are held."""
        by_queue = {each.queue: each for each in process_queues}
        asked_at = time.monotonic()
        held = await self.lock(list(by_queue))
        for queue, process_queue in by_queue.items():
            process_queue.locked_at = asked_at if queue in held else None

    def _bodies(self, queues: Sequence[MessageQueue]) -> list[tuple[str, LockBatchRequestBody]]:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        return [
            (
                name,
                LockBatchRequestBody(
                    consumer_group=self._client.group,
                    client_id=self._client.client_id,
                    mq_set=of_broker,
                ),
            )
            for name, of_broker in by_broker.items()
        ]
