"""What clients can fail with."""

from typing import TYPE_CHECKING

from congreve.errors import CongreveError

if TYPE_CHECKING:
    from congreve.client.message import SendResult


class ClientError(CongreveError):
    """Root of the clients' errors."""


class ClientStateError(ClientError):
    """The client is not started, is started twice or was stopped."""


class InvalidNameError(ClientError):
    """A topic or a group has a name that no broker takes."""


class InvalidSubscriptionError(ClientError):
    """A filter that says nothing, or a consumer without topics."""


class InvalidSettingError(ClientError):
    """A client's setting, or an argument of a call, is out of its range or of another type."""


class OffsetFileError(ClientError):
    """A broadcasting consumer's offsets are damaged, and so is the copy beside them."""


class InvalidMessageError(ClientError):
    """A message that no broker takes; nothing of it was sent."""


class NoNameServerError(ClientError):
    """None of the name servers answered."""


class RouteNotFoundError(ClientError):
    """The topic exists on no broker, or on none that can be used for this."""


class BrokerNotFoundError(ClientError):
    """A broker's or a cluster's name that the name servers do not know, or without a master."""


class SendTimeoutError(ClientError):
    """The message was not confirmed in time; it may be stored all the same."""


class RequestReplyTimeoutError(ClientError):
    """The request was sent, and nobody replied to it in time."""


class SendManyError(ClientError):
    """Not everything was stored; `sent` has the results of the batches that were, in order."""

    def __init__(self, cause: Exception, sent: "list[SendResult]") -> None:
        super().__init__(f"{len(sent)} batches are stored, then: {cause}")
        self.sent = sent


class BrokerError(ClientError):
    """A broker or name server refused a request: its response `code` and `remark`."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered with code {code}: {remark}")
        self.code = code
        self.remark = remark
        self.address = address
