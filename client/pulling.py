"""One pull: the request's fields, the answer's meaning (RocketMQ: PullAPIWrapper)."""

import msgspec

from congreve.client.errors import BrokerError
from congreve.client.message import MessageQueue, PullStatus
from congreve.client.received import PulledRecords
from congreve.client.subscription import Subscription
from congreve.remoting.codes import ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.headers import PullMessageResponseHeader

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION, LITE = 1, 2, 4, 16
"""Bits of a pull's sysFlag: take an offset along, wait for messages, the header says which are
wanted, the puller is no member (RocketMQ: PullSysFlag)."""

HEARTBEAT_MISSED = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)
"""What a broker answers to a member that it has not heard of, or not lately."""


class PullRequest(msgspec.Struct, kw_only=True):
    """What is asked of one queue. Times are in seconds.

    The broker knows what a member wants from its heartbeat; `carries_subscription` says it with
    the request.
    """

    group: str
    queue: MessageQueue
    subscription: Subscription
    count: int = 32
    wait_s: float = 0.0
    version_ms: int = 0
    carries_subscription: bool = False
    lite: bool = False

    def fields(self, offset: int, commit_offset: int | None = None) -> dict[str, str]:
        """Ext fields of PULL_MESSAGE; `commit_offset` is committed by the way."""
        flags = SUSPEND if self.wait_s > 0 else 0
        if commit_offset is not None:
            flags |= COMMIT_OFFSET
        if self.lite:
            flags |= LITE
        fields = {
            "consumerGroup": self.group,
            "topic": self.queue.topic,
            "queueId": str(self.queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(self.count),
            "commitOffset": str(commit_offset or 0),
            "suspendTimeoutMillis": str(int(self.wait_s * 1000)),
            "subVersion": str(self.version_ms),
            "expressionType": self.subscription.kind,
        }
        if self.carries_subscription:
            flags |= SUBSCRIPTION
            fields["subscription"] = self.subscription.expression
        fields["sysFlag"] = str(flags)
        return fields


class Pulled(msgspec.Struct, kw_only=True):
    """Answer to a pull; go on at `next_offset`, whatever `status` says."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    records: PulledRecords | None = None


_STATUSES = {int(status): status for status in PullStatus}


def read_answer(
    answer: RemotingCommand,
    address: str,
    subscription: Subscription,
    namespace: str | None = None,
) -> Pulled:
    """Messages show topics without the `namespace`. Raises BrokerError, RecordError for a damaged
    body, or HeaderError."""
    status = _STATUSES.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark, address)
    header = PullMessageResponseHeader.read(answer)
    records = None
    if status is PullStatus.FOUND:
        records = PulledRecords(answer.body, tags=subscription.tags, namespace=namespace)
    return Pulled(
        status=status,
        next_offset=header.next_begin_offset,
        min_offset=header.min_offset,
        max_offset=header.max_offset,
        suggested_broker_id=header.suggest_which_broker_id,
        records=records,
    )
