"""At the new master: connections of clients to the old one are served as the clients' own."""

import asyncio
import logging
import socket
from collections.abc import Callable

from congreve.base.limited_log import LimitedLog
from congreve.broker.errors import BrokerError
from congreve.broker.ha_frames import CLIENT, HAND_OVER, HAND_OVER_ACCEPTED
from congreve.broker.hand_over.greeting import client_in, receive
from congreve.broker.replication.ha_connector import CONNECT_S
from congreve.remoting.loop.background import BackgroundJobs

GREETINGS_MAX = 64
"""Connections of which it is not known yet what they are for."""
GREETING_SIZE = len(HAND_OVER) + CLIENT.size

logger = logging.getLogger(__name__)


class HandedOn:
    """Takes connections that have logged in at the HA port for more than the log.

    `adopt` gets the socket of a client's connection, and the client's address; it raises OSError if
    it does not take it. `otherwise` gets the other connections, with the bytes that have come, as
    HAService gives them. (RocketMQ: none.)
    """

    def __init__(
        self,
        adopt: Callable[[socket.socket, tuple[str, int]], None],
        otherwise: Callable[[socket.socket, bytes, str], None],
    ) -> None:
        self._adopt = adopt
        self._otherwise = otherwise
        self._greetings = BackgroundJobs("a connection that is handed on", logger)
        self._log = LimitedLog(logger)

    def stop(self) -> None:
        """Close those that have not said what they are for; idempotent."""
        self._greetings.cancel()

    def accept(self, peer: socket.socket, received: bytes, name: str) -> None:
        """Serve a connection; `received` came behind its login."""
        if len(self._greetings) >= GREETINGS_MAX:
            peer.close()
        else:
            self._greetings.begin(self._greet(peer, received, name))

    async def _greet(self, peer: socket.socket, received: bytes, name: str) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                received = await receive(peer, len(HAND_OVER), received)
                if not received.startswith(HAND_OVER):
                    self._otherwise(peer, received, name)
                    return
                received = await receive(peer, GREETING_SIZE, received)
                client = client_in(received[len(HAND_OVER) :])
                await asyncio.get_running_loop().sock_sendall(peer, HAND_OVER_ACCEPTED)
            self._adopt(peer, client)
        except (OSError, BrokerError) as error:
            peer.close()
            self._log.warning("no requests are taken from %s: %s", name, error or "it says nothing")
        except BaseException:
            peer.close()
            raise
