"""The broker's errors."""

from congreve.base.errors import CongreveError
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand


class BrokerError(CongreveError):
    """The base class of the broker's errors."""


class ConfigError(BrokerError):
    """A configuration file or value is invalid; the text has the key, the value and the line."""


class RefusedError(BrokerError):
    """The broker rejects a request: the answer gets `code`, and the text as its remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def check_body_size(request: RemotingCommand, most: int) -> None:
    """Raises RefusedError for a body over `most` bytes, which would block the event loop."""
    if len(request.body) > most:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the request's body has {len(request.body)} bytes, {most} are the most",
        )
