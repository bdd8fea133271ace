"""Links between the members: real sockets at both ends, and a network between that can fail."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

READ_MAX = 64 << 10
CONNECT_S = 3.0
"""How long a connection is tried over a link that carries nothing."""
LATENCIES_S = (0.0005, 0.005, 0.05)
SLOW_S = 0.3
TRY_AGAIN_S = 0.001


class NamedSocket(socket.socket):
    """One end of a connection between members."""

    peer_name = ""

    def getpeername(self) -> tuple[str, int]:
        """The member at the other end."""
        return self.peer_name, 1


class Network:
    """Carries bytes in their order, each after a time by chance; directions can be cut."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.cut: set[tuple[int, int]] = set()
        """Directions, from and to a member, in which nothing arrives."""
        self.slow: set[int] = set()
        """Members whose links take SLOW_S more."""
        self._latency_s = chance.choice(LATENCIES_S)
        self._listening: dict[str, tuple[int, Callable[[Link], None]]] = {}
        self._links: list[Link] = []

    def listen(self, address: str, member: int, accept: Callable[[Link], None]) -> None:
        """Give each connection to this address to `accept`."""
        self._listening[address] = member, accept

    def unlisten(self, address: str, accept: Callable[[Link], None]) -> None:
        """Refuse connections, unless another process listens there meanwhile."""
        if self._listening.get(address, (0, None))[1] == accept:
            del self._listening[address]

    async def connect(self, member: int, address: str) -> tuple[NamedSocket, Pipe]:
        """A connection, and what brings bytes to this end. Raises OSError."""
        await asyncio.sleep(self.delay(member, member))
        to, accept = self._listening.get(address, (0, None))
        if {(member, to), (to, member)} & self.cut:
            await asyncio.sleep(CONNECT_S)
            raise TimeoutError(f"{address} does not answer")
        if accept is None:
            raise ConnectionRefusedError(f"no process listens at {address}")
        link = Link(self, member, to)
        self._links.append(link)
        accept(link)
        return link.near, link.to_near

    def forget(self, link: Link) -> None:
        """The link has ended."""
        self._links.remove(link)

    def reset(self, member: int) -> None:
        """End all connections of a member whose process has ended."""
        for link in [each for each in self._links if member in each.members]:
            link.reset()

    def delay(self, sender: int, receiver: int) -> float:
        """How long the next bytes take."""
        slow = SLOW_S if {sender, receiver} & self.slow else 0.0
        return (self._latency_s + slow) * (0.5 + self.chance.random())


class Link:
    """One connection: `near` is the end of the member that connected."""

    def __init__(self, network: Network, near: int, far: int) -> None:
        self.members = near, far
        self.name = f"member-{near}"
        self._network = network
        self.near, near_inner = _pair(f"member-{far}")
        self.far, far_inner = _pair(self.name)
        self.to_far = Pipe(network, (near, far), near_inner, far_inner, self._ended)
        self.to_near = Pipe(network, (far, near), far_inner, near_inner, self._ended)
        self._inner = near_inner, far_inner
        self._open = 2

    def reset(self) -> None:
        """End both directions now; what is on the way is lost."""
        if self._open:
            self._open = 0
            self.to_far.end()
            self.to_near.end()
            for each in self._inner:
                each.close()
            self._network.forget(self)

    def _ended(self) -> None:
        self._open -= 1
        if not self._open:
            self._open = 1
            self.reset()


class Pipe:
    """One direction of a link."""

    def __init__(
        self,
        network: Network,
        members: tuple[int, int],
        source: socket.socket,
        target: socket.socket,
        ended: Callable[[], None],
    ) -> None:
        self.arrived: Callable[[], None] = _nothing
        """Called when bytes, or the end of the connection, have arrived."""
        self._network = network
        self._members = members
        self._source, self._target = source, target
        self._ended = ended
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        network.loop.add_reader(source, self._take)

    def end(self) -> None:
        """Carry nothing more."""
        self._network.loop.remove_reader(self._source)
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        self._network.loop.call_soon(self.arrived)

    def _take(self) -> None:
        try:
            data = self._source.recv(READ_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        loop = self._network.loop
        if not data:
            loop.remove_reader(self._source)
        due = loop.time() + self._network.delay(*self._members)
        if self._waiting:
            due = max(due, self._waiting[-1][0])
        self._waiting.append((due, data))
        if self._timer is None:
            self._timer = loop.call_at(due, self._deliver)

    def _deliver(self) -> None:
        loop = self._network.loop
        self._timer = None
        if self._members in self._network.cut:
            self._timer = loop.call_later(0.05, self._deliver)
            return
        while self._waiting and self._waiting[0][0] <= loop.time():
            due, data = self._waiting.popleft()
            if not data:
                with suppress(OSError):  # it has gone
                    self._target.shutdown(socket.SHUT_WR)
                self.arrived()
                self._ended()
                return
            try:
                sent = self._target.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                sent = len(data)  # its process has ended
            if sent < len(data):
                self._waiting.appendleft((due, data[sent:]))
                break
        self.arrived()
        if self._waiting:
            due = max(self._waiting[0][0], loop.time() + TRY_AGAIN_S)
            self._timer = loop.call_at(due, self._deliver)


def _pair(peer: str) -> Iterator[NamedSocket]:
    """The end that a member gets, whose other end is `peer`, and the network's side of it."""
    for each in socket.socketpair():
        end = NamedSocket(fileno=each.detach())
        end.setblocking(False)
        end.peer_name = peer
        yield end


def _nothing() -> None:
    pass
