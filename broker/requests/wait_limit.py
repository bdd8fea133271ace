"""How many requests may wait on the event loop, and how many bytes they have."""

from collections.abc import Iterator
from contextlib import contextmanager

from congreve.remoting.messages.command import RemotingCommand

WAITING_MAX = 10_000
WAITING_BYTES_MAX = 16 << 20  # of their requests


class WaitLimit:
    """Requests that wait for one thing, by number and by bytes. (RocketMQ has no such limit.)"""

    def __init__(self, most: int = WAITING_MAX, most_bytes: int = WAITING_BYTES_MAX) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self.count = self.size = 0
        """The requests that wait now, and their bytes."""

    def enter(self, size: int) -> bool:
        """Let a request of `size` bytes wait until leave(size); False if too many do."""
        if self.count >= self._most or self.size + size > self._most_bytes:
            return False
        self.count += 1
        self.size += size
        return True

    def leave(self, size: int) -> None:
        """A request of `size` bytes waits no longer."""
        self.count -= 1
        self.size -= size

    @contextmanager
    def waiting(self, request: RemotingCommand) -> Iterator[bool]:
        """Whether a request may wait, without its body, while the context lasts."""
        request.body = b""
        with self.holding(len(request.encode())) as entered:
            yield entered

    @contextmanager
    def holding(self, size: int) -> Iterator[bool]:
        """Whether a request of `size` bytes may wait while the context lasts."""
        entered = self.enter(size)
        try:
            yield entered
        finally:
            if entered:
                self.leave(size)
