"""Errors of the wire."""

from congreve.errors import CongreveError


class RemotingError(CongreveError):
    """Base of the wire's errors."""


class FrameError(RemotingError):
    """Bytes that cannot be a frame, or a frame whose header cannot be read."""


class HeaderError(RemotingError):
    """A header field is missing or is not what its type asks for; the message names it."""


class BodyError(RemotingError):
    """A body is not the JSON, or not the shape, that its request code asks for."""


class ConnectError(RemotingError):
    """No connection could be made to an address."""


class ConnectionLostError(RemotingError):
    """The connection ended before the answer came."""


class RequestTimeoutError(RemotingError):
    """The answer did not come in time."""


class TooManyRequestsError(RemotingError):
    """Too many of our requests wait for their answers on this connection."""
