"""Lanes alone: their mailbox entries, and the limits that they enforce without the event loop."""

from __future__ import annotations

import platform
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from congreve.remoting.lanes.connections import ConnectionTable
from congreve.remoting.lanes.handle import Kind, LaneHandle
from congreve.remoting.lanes.lane import Lane, LaneSink
from congreve.remoting.lanes.mailbox import Mailbox
from congreve.remoting.messages.command import RemotingCommand

MIB = 1 << 20
BRIEF_ROUNDS = 20
BRIEF_CONNECTIONS = 100
FRAME = RemotingCommand(code=1, body=b"body").encode()
MailboxEntry = tuple[int, int, bytes, int]


def receive(peer: socket.socket, size: int) -> bytes:
    """`size` bytes, or fewer if the lane closes the connection."""
    data = bytearray()
    while len(data) < size and (piece := peer.recv(size - len(data))):
        data += piece
    return bytes(data)


class Peers:
    """A lane in a thread, sockets that are connected to it, and its entries so far."""

    def __init__(self, lane: Lane, address: tuple[str, int]) -> None:
        self.lane = lane
        self.handle = lane.handle
        self.entries: list[MailboxEntry] = []
        self._address = address

    def connect(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=20)

    def read(self) -> list[MailboxEntry]:
        """All entries so far."""
        while found := self.handle.take_entries():
            self.entries += found
        return self.entries

    def of_kind(self, kind: Kind) -> list[MailboxEntry]:
        return [entry for entry in self.read() if entry[0] == kind]

    def wait_turns(self, more: int = 5) -> None:
        """Wait until the lane has read what its peers have sent; it takes `more` turns for it."""
        upto = self.lane.turns + more
        self.wait(lambda: self.lane.turns >= upto)

    def wait(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not done():
            assert time.monotonic() < deadline, self.entries[-10:]
            time.sleep(0.002)


@contextmanager
def lane(*further: socket.socket, **settings: Any) -> Iterator[Peers]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setblocking(False)
        made = Lane([each.fileno() for each in (listener, *further)], LaneSink(), **settings)
        thread = threading.Thread(target=made.run, name="lane")
        thread.start()
        try:
            yield Peers(made, listener.getsockname())
        finally:
            made.handle.stop()
            thread.join()


def test_entries_report_a_connection_its_frames_and_its_end() -> None:
    with lane() as peers:
        with peers.connect() as peer:
            port = peer.getsockname()[1]
            peer.sendall(FRAME[:9])
            time.sleep(0.01)
            peer.sendall(FRAME[9:] + FRAME)
            peers.wait(lambda: len(peers.of_kind(Kind.FRAME)) == 2)
            number = peers.entries[0][1]
            peers.handle.write(number, b"to ")
            peers.handle.write(number, b"you")
            assert receive(peer, 6) == b"to you"
        peers.wait(lambda: peers.of_kind(Kind.CLOSED))
        assert peers.entries == [
            (Kind.OPENED, number, bytes([127, 0, 0, 1]), port),
            (Kind.FRAME, number, FRAME, 0),
            (Kind.FRAME, number, FRAME, 0),
            (Kind.CLOSED, number, b"", 0),
        ]
        assert peers.lane.connections == 0


def test_a_loop_that_reads_late_loses_no_frame_and_bounds_their_memory() -> None:
    many = 500
    with lane(entries_max=40, entry_bytes_max=20 * len(FRAME)) as peers, peers.connect() as peer:
        peer.sendall(b"".join(FRAME for _ in range(many)))
        time.sleep(0.05)
        held = peers.handle.take_entries()
        # OPENED, and as many frames as have room.
        assert len(held) <= 21
        peers.entries += held
        peers.wait(lambda: len(peers.of_kind(Kind.FRAME)) == many)


def test_a_turn_of_the_loop_takes_few_of_many_frames() -> None:
    many = 500
    with lane() as peers, peers.connect() as peer:
        peer.sendall(FRAME * many)
        turns: list[int] = []

        def take() -> bool:
            turns.append(len(peers.handle.take_entries()))
            return sum(turns) == 1 + many

        peers.wait(take)
        assert max(turns) <= 32


def test_a_turn_of_the_loop_takes_few_bytes_of_large_frames() -> None:
    frame = RemotingCommand(code=1, body=bytes(MIB)).encode()
    many = 12
    with lane() as peers, peers.connect() as peer:
        peers.wait(lambda: peers.of_kind(Kind.OPENED))
        peer.sendall(frame * many)
        turns: list[int] = []

        def take() -> bool:
            turns.append(len(peers.handle.take_entries()))
            return sum(turns) == many

        peers.wait(take)
        assert max(turns) == 1


LARGE = 64 * 1024


def numbered(number: int, size: int) -> bytes:
    """A frame with a body of `size` bytes."""
    return RemotingCommand(code=1, opaque=number, body=bytes(size)).encode()


def ports_of(entries: list[MailboxEntry]) -> dict[int, int]:
    """The port of each connection that has been opened."""
    return {number: port for kind, number, _, port in entries if kind == Kind.OPENED}


def take(peers: Peers) -> list[MailboxEntry]:
    """What one turn of the loop takes."""
    found = peers.handle.take_entries()
    peers.entries += found
    return found


def test_short_frames_overtake_large_ones_of_other_connections() -> None:
    """A name server answers clients while hundreds of brokers register."""
    with lane() as peers, peers.connect() as bulk, peers.connect() as short:
        bulk.sendall(numbered(0, LARGE) * 6)
        peers.wait_turns()
        short.sendall(FRAME * 5)
        peers.wait_turns()
        first = take(peers)
        ports = ports_of(first)
        frames = [ports[number] for kind, number, *_ in first if kind == Kind.FRAME]
        own = short.getsockname()[1]
        assert frames[:5] == [own] * 5
        assert 1 <= len(frames[5:]) <= 2
        peers.wait(lambda: len(peers.of_kind(Kind.FRAME)) == 11)


def test_large_frames_are_not_starved_by_short_ones() -> None:
    with lane() as peers, peers.connect() as bulk, peers.connect() as short:
        bulk.sendall(numbered(0, LARGE) * 6)
        short.sendall(FRAME * 400)
        peers.wait_turns()
        turns = [take(peers) for _ in range(6)]
        large = [sum(len(data) > LARGE for _, _, data, _ in turn) for turn in turns]
        assert sum(large) == 6, large
        assert all(map(len, turns))
        assert sum(map(len, turns)) < 400


def test_entries_of_one_connection_stay_in_order_whatever_their_sizes() -> None:
    """Frames of three connections, their ends and what is not a frame, taken a turn at a time."""
    sizes = random.Random(7).choices((0, 100, 3_000, 5_000, LARGE), k=300)
    with lane(entry_bytes_max=1 << 20) as peers:
        senders = [peers.connect() for _ in range(3)]
        ports = [peer.getsockname()[1] for peer in senders]

        def send(peer: socket.socket) -> None:
            for number, size in enumerate(sizes):
                peer.sendall(numbered(number, size))
            peer.sendall(b"\xff" * 8)
            peer.close()

        with ThreadPoolExecutor(len(senders)) as pool:
            done = [pool.submit(send, peer) for peer in senders]
            peers.wait(lambda: len(peers.of_kind(Kind.UNFRAMEABLE)) == len(senders))
            for each in done:
                each.result()
        for number in ports_of(peers.entries):
            peers.handle.close_connection(number, at_once=False)
        peers.wait(lambda: len(peers.of_kind(Kind.CLOSED)) == len(senders))
    assert sorted(ports_of(peers.entries).values()) == sorted(ports)
    for connection in ports_of(peers.entries):
        own = [(kind, data) for kind, number, data, _ in peers.entries if number == connection]
        assert [kind for kind, _ in own if kind != Kind.FRAME] == [
            Kind.OPENED,
            Kind.UNFRAMEABLE,
            Kind.CLOSED,
        ]
        assert [kind for kind, _ in own[-2:]] == [Kind.UNFRAMEABLE, Kind.CLOSED]
        frames = [data for kind, data in own if kind == Kind.FRAME]
        assert frames == [numbered(number, size) for number, size in enumerate(sizes)]


def test_frames_of_a_connection_that_has_ended_come_before_its_end() -> None:
    with lane() as peers, peers.connect() as peer:
        peer.sendall(numbered(0, LARGE) * 6 + FRAME)
        peers.wait_turns()
        peer.close()
        peers.wait(lambda: not peers.lane.connections)
        peers.wait(lambda: peers.of_kind(Kind.CLOSED))
        assert [kind for kind, *_ in peers.entries] == [Kind.OPENED, *[Kind.FRAME] * 7, Kind.CLOSED]


def test_large_frames_leave_room_for_short_ones() -> None:
    with (
        lane(entry_bytes_max=1 << 20) as peers,
        ThreadPoolExecutor(1) as pool,
        peers.connect() as bulk,
        peers.connect() as short,
    ):
        sent = pool.submit(bulk.sendall, numbered(0, LARGE) * 100)
        peers.wait_turns(12)
        refused = peers.handle.unfinished_bytes
        assert refused
        short.sendall(numbered(1, 2_000) * 90)
        peers.wait_turns()
        assert peers.handle.unfinished_bytes == refused
        peers.wait(lambda: len(peers.of_kind(Kind.FRAME)) == 190)
        sent.result()


def test_an_answer_to_a_connection_that_is_gone_reaches_no_other() -> None:
    with lane() as peers:
        with peers.connect():
            peers.wait(lambda: peers.of_kind(Kind.OPENED))
            gone = peers.entries[0][1]
        peers.wait(lambda: peers.of_kind(Kind.CLOSED))
        with peers.connect() as second:
            peers.wait(lambda: len(peers.of_kind(Kind.OPENED)) == 2)
            number = peers.of_kind(Kind.OPENED)[1][1]
            assert number & 0x7FFFFFFF == gone & 0x7FFFFFFF, "the same place"
            peers.handle.write(gone, b"not for you")
            peers.handle.write(number, b"for you")
            assert receive(second, 7) == b"for you"


def test_a_connection_with_a_frame_incomplete_for_too_long_is_closed() -> None:
    with lane(frame_timeout_s=0.1, frame_bytes_per_s=1e9) as peers, peers.connect() as peer:
        peer.sendall(FRAME[:10])
        assert peer.recv(1) == b""
        peers.wait(lambda: peers.of_kind(Kind.CLOSED))
        assert [entry[3] for entry in peers.of_kind(Kind.CUT_LATE)] == [10]
        assert peers.lane.cut_count == 1
        assert peers.handle.unfinished_bytes == 0


def test_unfinished_frames_take_little_more_than_their_limit_at_any_time() -> None:
    limit, count = 4 * MIB, 30
    begin = (8 * MIB).to_bytes(4, "big") + bytes(MIB)
    with lane(unfinished_max=limit) as peers, ExitStack() as stack:
        most = 0
        for _ in range(count):
            peer = stack.enter_context(peers.connect())
            with suppress(OSError):
                peer.sendall(begin)
            most = max(most, peers.handle.unfinished_bytes)
        peers.wait(lambda: len(peers.of_kind(Kind.CUT_LARGE)) >= count // 2)
        assert most <= limit + 2 * MIB


def test_a_frame_is_not_late_while_its_lane_does_not_read() -> None:
    with lane(frame_timeout_s=0.3, frame_bytes_per_s=1e9) as peers, peers.connect() as peer:
        peer.sendall(FRAME[:10])
        peers.wait(lambda: peers.handle.unfinished_bytes)
        number = peers.read()[0][1]
        peers.handle.set_reading(number, False)
        time.sleep(0.8)
        peer.sendall(FRAME[10:])
        peers.handle.set_reading(number, True)
        peers.wait(lambda: peers.of_kind(Kind.FRAME))
        assert peers.lane.cut_count == 0


def test_connections_with_the_largest_unfinished_frames_are_closed_beyond_the_limit() -> None:
    frame = RemotingCommand(code=1, body=bytes(4 * MIB)).encode()
    with lane(unfinished_max=3 * MIB) as peers, peers.connect() as small, peers.connect() as large:
        small.sendall(FRAME[:10])
        large.sendall(frame[: 3 * MIB + 100])
        with suppress(ConnectionResetError):  # not all of it was read
            assert large.recv(1) == b""
        small.sendall(FRAME[10:])
        peers.wait(lambda: peers.of_kind(Kind.FRAME))
        assert len(peers.of_kind(Kind.CUT_LARGE)) == 1


def test_peers_that_send_cut_frames_again_are_read_little() -> None:
    check_s, count = 0.25, 24
    begin = (8 * MIB).to_bytes(4, "big") + bytes(2 * MIB)
    with lane(unfinished_max=16 * MIB) as peers, peers.connect() as small, ExitStack() as stack:
        started, senders, cut = time.monotonic(), [], 0
        while cut < count or time.monotonic() < started + 4 * check_s:
            while len(senders) < count:
                senders.append((stack.enter_context(peers.connect()), bytearray(begin)))
                senders[-1][0].setblocking(False)
            for peer, left in tuple(senders):
                try:
                    del left[: peer.send(left)]
                except BlockingIOError:
                    pass
                except OSError:
                    senders.remove((peer, left))
            cut = len(peers.of_kind(Kind.CUT_LARGE))
        checks = (time.monotonic() - started) / check_s + 1
        small.sendall(FRAME)
        peers.wait(lambda: peers.of_kind(Kind.FRAME))
        assert cut <= 6 * checks


def test_a_turn_reads_a_bounded_number_of_bytes_however_many_connections_have_some() -> None:
    begin, count = (4 * MIB).to_bytes(4, "big") + bytes(96 * 1024), 40
    with socket.create_server(("127.0.0.1", 0), backlog=count) as listener, ExitStack() as stack:
        listener.setblocking(False)
        sent = 0
        for _ in range(count):
            peer = stack.enter_context(socket.create_connection(listener.getsockname()))
            peer.setblocking(False)
            sent += peer.send(begin)
        assert sent > 3 * MIB
        made = Lane([listener.fileno()], LaneSink())
        thread = threading.Thread(target=made.run)
        thread.start()
        try:
            deadline = time.monotonic() + 60
            while made.handle.unfinished_bytes < sent:
                assert time.monotonic() < deadline
            assert made.turns > sent // MIB + 1
        finally:
            made.handle.stop()
            thread.join()


def test_the_loop_learns_of_a_connection_only_if_it_stays_or_sends() -> None:
    with lane() as peers, peers.connect() as stays:
        peers.wait(lambda: peers.of_kind(Kind.OPENED))
        # One may be open when the lane looks for late ones: on a busy machine many are.
        for frames in range(1, BRIEF_ROUNDS + 1):
            before = len(peers.of_kind(Kind.OPENED))
            for _ in range(BRIEF_CONNECTIONS):
                peers.connect().close()
            with peers.connect() as asks:
                asks.sendall(FRAME)
                peers.wait(lambda frames=frames: len(peers.of_kind(Kind.FRAME)) == frames)
            peers.wait(lambda: peers.lane.connections == 1)
            told = len(peers.of_kind(Kind.OPENED)) - before
            if told < BRIEF_CONNECTIONS // 5:
                break
        assert told < BRIEF_CONNECTIONS // 5
        assert len(peers.of_kind(Kind.CLOSED)) == len(peers.of_kind(Kind.OPENED)) - 1
        stays.sendall(FRAME)
        peers.wait(lambda: len(peers.of_kind(Kind.FRAME)) == frames + 1)


def test_an_idle_connection_is_closed() -> None:
    with lane(idle_s=0.1) as peers, peers.connect() as peer:
        assert peer.recv(1) == b""


def test_a_connection_whose_first_frame_does_not_come_in_time_is_closed() -> None:
    with lane(first_frame_s=2) as peers, peers.connect() as asked, peers.connect() as silent:
        asked.sendall(FRAME)
        with peers.connect() as slow:
            slow.sendall(FRAME[:9])
            assert silent.recv(1) == slow.recv(1) == b""
        peers.wait(lambda: len(peers.of_kind(Kind.CUT_SILENT)) == 2)
        asked.sendall(FRAME)
        peers.wait(lambda: len(peers.of_kind(Kind.FRAME)) == 2)
        assert (peers.lane.connections, peers.lane.cut_count) == (1, 0)


def test_a_lane_accepts_from_several_listening_sockets() -> None:
    with socket.create_server(("127.0.0.2", 0)) as second:
        second.setblocking(False)
        with (
            lane(second) as peers,
            peers.connect() as near,
            socket.create_connection(second.getsockname(), timeout=20) as far,
        ):
            peers.wait(lambda: len(peers.of_kind(Kind.OPENED)) == 2)
            ports = {divmod(entry[3], 1 << 16) for entry in peers.entries}
            assert ports == {(0, near.getsockname()[1]), (1, far.getsockname()[1])}


def test_invalid_frames_are_reported_and_reading_stops() -> None:
    with lane() as peers, peers.connect() as peer:
        peer.sendall(bytes(4) + b"GET / HTTP/1.1")
        peers.wait(lambda: peers.of_kind(Kind.UNFRAMEABLE))
        assert peers.of_kind(Kind.UNFRAMEABLE)[0][2] == bytes(4) + b"GET "
        peers.handle.close_connection(peers.entries[0][1], True)
        assert peer.recv(1) == b""


def test_the_broker_reads_nothing_from_a_peer_that_does_not_read() -> None:
    with lane() as peers, peers.connect() as peer:
        peers.wait(lambda: peers.of_kind(Kind.OPENED))
        number = peers.entries[0][1]
        peers.handle.write(number, bytes(16 * MIB))
        peers.wait(lambda: peers.of_kind(Kind.UNWRITABLE))
        peer.sendall(FRAME)
        time.sleep(0.05)
        assert not peers.of_kind(Kind.FRAME)
        assert peers.handle.unsent(number, 16 * MIB) > MIB
        assert len(receive(peer, 16 * MIB)) == 16 * MIB
        peers.wait(lambda: peers.of_kind(Kind.FRAME))
        assert len(peers.of_kind(Kind.WRITABLE)) == 1
        assert peers.handle.unsent(number, 16 * MIB) == 0


def test_closing_sends_the_remaining_bytes_first() -> None:
    with lane() as peers, peers.connect() as peer:
        peers.wait(lambda: peers.of_kind(Kind.OPENED))
        number = peers.entries[0][1]
        peers.handle.write(number, bytes(8 * MIB))
        peers.handle.close_connection(number, False)
        assert len(receive(peer, 8 * MIB)) == 8 * MIB
        assert peer.recv(1) == b""


def test_a_fence_is_returned_after_all_entries_before_it() -> None:
    with lane() as peers, peers.connect() as peer:
        peer.sendall(FRAME)
        peers.wait(lambda: peers.of_kind(Kind.FRAME))
        peers.handle.fence(7)
        peers.wait(lambda: peers.of_kind(Kind.FENCED))
        assert peers.entries[-1] == (Kind.FENCED, -1, b"", 7)


def test_a_lane_survives_thousands_of_short_connections() -> None:
    with lane() as peers:
        for _ in range(3):
            several = [peers.connect() for _ in range(700)]
            peers.wait(lambda: peers.lane.connections == 700)
            for peer in several:
                peer.sendall(FRAME)
            for peer in several:
                peer.close()
            peers.wait(lambda: peers.lane.connections == 0)
        assert len(peers.of_kind(Kind.FRAME)) == 2100


def test_an_empty_mailbox_has_no_entries() -> None:
    assert len(Mailbox(10, 100)) == 0


def test_a_mailbox_that_grows_keeps_the_order_of_entries_around_its_end() -> None:
    """The ring doubles while its first entry is in the middle and its last one before it."""
    mailbox = Mailbox(10_000, 1 << 20)
    handle = LaneHandle(mailbox, mailbox, ConnectionTable(None, 0, 0, 0, 0))
    for number in range(1000):
        handle.fence(number)
    taken = [number for *_, number in handle.take_entries()]
    begin = len(taken)
    assert taken == list(range(begin))
    assert 0 < begin < 1000
    for number in range(1000, 3000):
        handle.fence(number)
    while entries := handle.take_entries():
        taken += [number for *_, number in entries]
    assert taken == list(range(3000))


def test_connections_end_with_their_lane_while_others_keep_its_objects() -> None:
    """A frozen or referenced lane would leave its peers with a connection that nothing serves."""
    with lane() as peers:
        peer = peers.connect()
        peers.wait(lambda: peers.of_kind(Kind.OPENED))
    with peer:
        assert receive(peer, 1) == b""
    assert peers.lane is not None


def slice_ns(thread: int) -> int:
    """The time slice of a thread of this process."""
    scheduled = Path(f"/proc/self/task/{thread}/sched").read_text()
    return int(re.search(r"^se\.slice\s*:\s*(\d+)", scheduled, re.MULTILINE)[1])


@pytest.mark.skipif(
    tuple(map(int, platform.release().split(".")[:2])) < (6, 12),
    reason="this Linux has no time slices of single threads",
)
def test_a_lane_gets_a_core_soon_because_its_time_slices_are_short() -> None:
    with lane() as peers:
        thread = next(each for each in threading.enumerate() if each.name == "lane").native_id
        peers.wait(lambda: slice_ns(thread) == 100_000)
        assert slice_ns(threading.get_native_id()) > 100_000
