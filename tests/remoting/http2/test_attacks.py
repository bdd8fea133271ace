"""Known attacks on servers of HTTP/2 end the connection they come on, or cost little."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from h2.settings import SettingCodes

from congreve.remoting.lanes.handle import Kind

from .built import needs_http2
from .peer import Peer
from .test_sessions import MIB, connected, server

pytestmark = needs_http2

PAGE = 4096


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is neither compressed nor kept."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


BLOCK = b"".join(
    literal(*header)
    for header in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/a/b"),
        (b":authority", b"here"),
        (b"content-type", b"application/grpc"),
    )
)


def attack(peer: Peer, frames: bytes) -> None:
    """Send these frames until the other end has enough of them."""
    with pytest.raises(OSError):
        for _ in range(2000):
            peer.socket.sendall(frames)
            time.sleep(0)


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


OPEN = h2_frame(1, 4, 1, BLOCK)
FLOODS = {
    "empty data": OPEN + h2_frame(0, 0, 1, b"") * 3000,
    "priority": h2_frame(2, 0, 1, b"\0\0\0\3\0") * 3000,
    "ping": h2_frame(6, 0, 0, bytes(8)) * 1000,
    "settings": h2_frame(4, 0, 0, b"") * 1000,
    "continuation": h2_frame(1, 0, 1, b"") + h2_frame(9, 0, 1, b"") * 1000,
    "window of nothing": h2_frame(8, 0, 0, bytes(4)) * 1000,
    "window overflow": h2_frame(8, 0, 0, b"\x7f\xff\xff\xff") * 1000,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_the_connection_and_no_other(flood: str) -> None:
    with connected() as (made, peer):
        hostile = Peer(made.address)
        attack(hostile, FLOODS[flood])
        assert peer.answer(peer.call(b"x")).messages == [b"x"]
        hostile.close()
        made.wait(lambda: made.lane.connections == 1)


def test_streams_that_are_reset_at_once_end_the_connection() -> None:
    with connected() as (made, peer):
        hostile = Peer(made.address)
        try:
            for _ in range(20_000):
                stream = hostile.begin()
                hostile.h2.reset_stream(stream)
                hostile.flush()
        except OSError:
            pass
        made.wait(lambda: made.lane.connections == 1)
        assert peer.answer(peer.call(b"x")).messages == [b"x"]


def test_a_block_of_headers_that_unpacks_to_much_takes_no_memory() -> None:
    # One header of 4,000 bytes, and 16,000 references to it.
    bomb = BLOCK + b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000
    bomb += b"\xbe" * (16_384 - len(bomb))
    with connected() as (made, peer):
        hostile = Peer(made.address)
        before = resident()
        for stream in range(1, 201, 2):
            hostile.socket.sendall(h2_frame(1, 4 | 1, stream, bomb))
        hostile.h2.ping(b"12345678")
        hostile.flush_if_open()
        assert peer.answer(peer.call(b"x")).messages == [b"x"]
        assert resident() - before < 32 * MIB, "unpacked they have 6 GiB"
        assert made.handle.unfinished_bytes == 0
        hostile.close()


def resident() -> int:
    """Bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_a_peer_that_takes_no_answer_is_not_served_for_long() -> None:
    with server() as made:
        peer = Peer(made.address, reads_all=False)
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        peer.flush()
        peer.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            for _ in range(1000):
                peer.call(bytes(MIB // 4))
        (number,) = {entry[1] for entry in made.entries}
        made.wait(lambda: made.of_kind(Kind.UNWRITABLE))
        assert MIB < made.handle.unsent(number, 0) < 4 * MIB
        peer.close()
