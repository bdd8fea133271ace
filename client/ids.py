"""Generates ids of messages and clients (RocketMQ: MessageClientIDSetter)."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import datetime


def client_id(address: str) -> str:
    """A client id ``ip@pid#nanoseconds``, unique for each client."""
    return f"{address}@{os.getpid()}#{time.monotonic_ns()}"


def month_start(now_ms: int) -> datetime:
    """The beginning of that month in local time; ids count milliseconds from there."""
    return datetime.fromtimestamp(now_ms / 1000).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )


class UniqueIds:
    """Generates message ids of 32 upper-case hex digits, the UNIQ_KEY property.

    An id holds the address, the process id, a number that differs between generators in one process
    (in Java the class loader's hash), the milliseconds since the month began in local time, and a
    counter. `clock` returns seconds since 1970. Any thread may call it.
    (RocketMQ: MessageClientIDSetter.)
    """

    def __init__(
        self, address: str, *, clock: Callable[[], float] = time.time, token: int | None = None
    ) -> None:
        self._clock = clock
        token = secrets.randbits(32) if token is None else token
        host = socket.inet_aton(address).hex().upper()
        self._prefix = f"{host}{os.getpid() & 0xFFFF:04X}{token:08X}"
        self._counter = 0
        self._lock = threading.Lock()
        self._month_start_ms = self._month_end_ms = 0

    def __call__(self) -> str:
        head, counter = self.block(1)
        return f"{head}{counter & 0xFFFF:04X}"

    def block(self, count: int) -> tuple[str, int]:
        """Reserve `count` ids; returns their common first 28 digits and the value of the first id's
        last four.

        The last four digits count up by one with each id and wrap after FFFF.
        """
        now = int(self._clock() * 1000)
        with self._lock:
            if now >= self._month_end_ms:
                self._enter_month(now)
            elapsed = max(0, now - self._month_start_ms)
            first, self._counter = self._counter, self._counter + count
        return f"{self._prefix}{elapsed & 0xFFFFFFFF:08X}", first

    def _enter_month(self, now_ms: int) -> None:
        start = month_start(now_ms)
        turn, month = divmod(start.month, 12)
        end = start.replace(year=start.year + turn, month=month + 1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._month_end_ms = int(end.timestamp() * 1000)
