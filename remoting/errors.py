"""Errors of the wire."""

import os

from congreve.base.errors import CongreveError


class RemotingError(CongreveError):
    """Base of the wire's errors."""


class FrameError(RemotingError):
    """Bytes that cannot be a frame, or a frame whose header cannot be read."""


class HeaderError(RemotingError):
    """A header field is missing or does not have its type; the message names it."""


class BodyError(RemotingError):
    """A body is not JSON, or does not have the shape that its request code requires."""


class ConnectError(RemotingError):
    """No connection could be made to an address."""


class ConnectionLostError(RemotingError):
    """The connection ended before the answer came."""


class RequestTimeoutError(RemotingError):
    """The answer did not come in time."""


class TooManyRequestsError(RemotingError):
    """Too many of our requests wait for their answers on this connection."""


class OtherProcessError(RemotingError):
    """A child made by fork() used what its parent started."""


class LoopThreadError(RemotingError):
    """The thread of an event loop cannot run this: it has ended, or would wait for itself."""


def reason_of(error: Exception) -> str:
    """Why there is no connection: of a refusal what the system says, without address and number."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error)
