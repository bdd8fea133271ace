"""Readiness for systemd (Type=notify): one datagram to the socket that NOTIFY_SOCKET names."""

import logging
import socket

logger = logging.getLogger(__name__)


def notify_ready(notify_socket: str | None) -> None:
    """Send READY=1 to the socket that the environment's NOTIFY_SOCKET names, if any."""
    if not notify_socket:
        return
    address = "\0" + notify_socket[1:] if notify_socket.startswith("@") else notify_socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.sendto(b"READY=1", address)
        except OSError as error:
            # It may be one that a process further up left in the environment: no reason to stop.
            logger.warning("nobody hears at NOTIFY_SOCKET=%s: %s", notify_socket, error.strerror)
