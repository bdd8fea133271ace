"""Log lines about what peers send."""

import logging

from congreve.base.errors import CongreveError
from congreve.base.limited_log import LimitedLog
from congreve.remoting.errors import FrameError

logger = logging.getLogger(__name__)


class PeerLog:
    """Rate-limited log lines about peers; connections share it. A peer names itself by its repr."""

    def __init__(self) -> None:
        self._unframeable = LimitedLog(logger)
        self._refused: dict[int, LimitedLog] = {}

    def unframeable(self, peer: object, error: FrameError) -> None:
        """Log that a connection is closed because its bytes are not frames."""
        self._unframeable.warning("%r: %s: closing it", peer, error)

    def refused(self, peer: object, code: int, error: CongreveError) -> None:
        """Log that the handler of this request code refused a request."""
        log = self._refused.setdefault(code, LimitedLog(logger))
        log.warning("%r: request code %d refused: %s", peer, code, error)
