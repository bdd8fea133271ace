"""The state of a service of Type=notify for systemd: ready, alive or stopping (sd_notify)."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

logger = logging.getLogger(__name__)


class Notifier:
    """Sends the service's state to the socket NOTIFY_SOCKET; without one, it does nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is the process's; WATCHDOG_USEC is ignored if WATCHDOG_PID is another's."""
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._watchdog_s = _watchdog_s(environment) if name else 0.0

    def ready(self) -> None:
        """Report that the servers accept connections."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Report that the servers begin to stop."""
        self._send("STOPPING=1")

    async def keep_alive(self) -> None:
        """Report to the watchdog that the event loop runs, twice in each WatchdogSec= of the unit.

        It returns at once if the unit has no watchdog.
        """
        while self._watchdog_s > 0:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / 2)

    def _send(self, state: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(state.encode(), self._address)
            except OSError as error:
                # A parent process may have left the variable behind, so the service keeps running.
                shown = self._address.replace("\0", "@")
                logger.warning("cannot notify NOTIFY_SOCKET=%s: %s", shown, error.strerror)


def _watchdog_s(environment: Mapping[str, str]) -> float:
    meant_for = environment.get("WATCHDOG_PID", "")
    if meant_for not in ("", str(os.getpid())):
        return 0.0
    microseconds = environment.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0
