"""Exceptions of the clients."""

from typing import TYPE_CHECKING

from congreve.base.errors import CongreveError

if TYPE_CHECKING:
    from congreve.client.results import SendResult


class ClientError(CongreveError):
    """Root of the clients' exceptions."""


class ClientStateError(ClientError):
    """The client is not started, was started twice or was stopped."""


class InvalidNameError(ClientError):
    """No broker accepts the name of a topic or a group."""


class InvalidSubscriptionError(ClientError):
    """A subscription is empty or malformed, or a consumer has no topics."""


class InvalidSettingError(ClientError):
    """A client's setting or an argument of a call is out of range or has the wrong type."""


class OffsetFileError(ClientError):
    """The offset file of a broadcasting consumer and its backup are damaged."""


class InvalidMessageError(ClientError):
    """No broker would accept the message; it was not sent."""


class NoNameServerError(ClientError):
    """No name server answered."""


class RouteNotFoundError(ClientError):
    """No broker has the topic, or none of those that have it accepted messages in time.

    `unknown` is the name of a topic that no broker has.
    """

    def __init__(self, message: str, unknown: str | None = None) -> None:
        super().__init__(message)
        self.unknown = unknown


class BrokerNotFoundError(ClientError):
    """No name server has the broker or the cluster, or it has no master."""


class SendTimeoutError(ClientError):
    """No confirmation of the message arrived in time; the broker may have stored it."""


class RequestReplyTimeoutError(ClientError):
    """The request was sent, and no reply arrived in time."""


class TransactionEndError(ClientError):
    """The broker refused the outcome of a transaction: a check ended it with another one."""


class RebalanceError(ClientError):
    """The strategy that shares queues among the members of a group raised an error."""


class ResendConflictError(ClientError):
    """Another process resends dead letters of the same group; try again when it has ended."""


class SendManyError(ClientError):
    """Only some batches were stored; `sent` has their results in order."""

    def __init__(self, cause: Exception, sent: "list[SendResult]") -> None:
        super().__init__(f"{len(sent)} batches are stored, then: {cause}")
        self.sent = sent


class BrokerError(ClientError):
    """A broker or name server answered with an error: its response `code` and `remark`."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered with code {code}: {remark}")
        self.code = code
        self.remark = remark
        self.address = address
