"""Encodes a pull request and decodes its answer (RocketMQ: PullAPIWrapper)."""

import msgspec

from congreve.client.errors import BrokerError
from congreve.client.message import MessageQueue, PullStatus
from congreve.client.received import PulledRecords
from congreve.client.subscription import Subscription
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageResponseHeader

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION, LITE = 1, 2, 4, 16
"""Bits of a pull's sysFlag: commit an offset, wait for messages, the header holds the
subscription, the client is not a member (RocketMQ: PullSysFlag)."""

HEARTBEAT_MISSED = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)
"""Error codes of a broker that has no heartbeat, or only an old one, of this client."""


class PullRequest(msgspec.Struct, kw_only=True):
    """A pull of one queue (RocketMQ: PullMessageRequestHeader). Times are in seconds.

    A member's heartbeat has its subscription; with `carries_subscription` the request has it too.
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
        """Ext fields of PULL_MESSAGE; the broker commits `commit_offset` with the pull."""
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
    """The answer to a pull; the next one continues at `next_offset`, whatever `status` is.

    (RocketMQ: PullResult.)
    """

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
    """Decode an answer; messages show topics without the `namespace`.

    Raises BrokerError when the broker refuses the pull, RecordError when the body is damaged,
    HeaderError when a field is missing or malformed.
    """
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
