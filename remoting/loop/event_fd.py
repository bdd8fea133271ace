"""An eventfd: a descriptor that any thread can make readable (RocketMQ: WaitNotifyObject)."""

import os


class EventFd:
    """Wakes a thread that polls `descriptor`; compiled code may write to it, too."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """The descriptor, for poll and epoll."""
        return self.descriptor

    def signal(self) -> None:
        """Make the descriptor readable."""
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Let the next signal() wake the thread again."""
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Free the descriptor, when no code uses it any more."""
        os.close(self.descriptor)
