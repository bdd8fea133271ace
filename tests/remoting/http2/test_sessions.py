"""HTTP/2 in a lane: calls, answers, flow control, and what a hostile peer may do."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from congreve.remoting.http2.built import http2_sessions
from congreve.remoting.lanes.call import (
    CallField,
    GrpcStatus,
    read_call,
    reply_end,
    reply_message,
)
from congreve.remoting.lanes.handle import Kind
from congreve.remoting.lanes.http2 import CallCodec
from congreve.remoting.lanes.lane import Lane, LaneSink
from congreve.remoting.messages.command import RemotingCommand

from .built import needs_http2
from .peer import PATH, Peer, framed

pytestmark = needs_http2

MIB = 1 << 20
MESSAGE_MAX = 5 * MIB
Serve = Callable[["Server", int, int, bytes], None]


class Server:
    """A lane in a thread, and a thread in place of the event loop that answers its calls."""

    def __init__(self, lane: Lane, address: tuple[str, int], serve: Serve | None) -> None:
        self.lane, self.address = lane, address
        self.target = f"{address[0]}:{address[1]}"
        self.handle = lane.handle
        self.entries: list[tuple[int, int, bytes, int]] = []
        self._serve = serve
        self._stopping = False
        self._threads = [threading.Thread(target=lane.run), threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()

    def of_kind(self, kind: Kind) -> list[tuple[int, int, bytes, int]]:
        """The entries of a kind so far."""
        return [entry for entry in self.entries if entry[0] == kind]

    def wait(self, done: Callable[[], object]) -> None:
        """Wait until `done`."""
        deadline = time.monotonic() + 60
        while not done():
            assert time.monotonic() < deadline, [entry[:2] for entry in self.entries[-10:]]
            time.sleep(0.002)

    def stop(self) -> None:
        """Stop both threads."""
        self._stopping = True
        self.handle.stop()
        for thread in self._threads:
            thread.join()

    def _read(self) -> None:
        while not self._stopping:
            for entry in self.handle.take_entries():
                self.entries.append(entry)
                if entry[0] == Kind.CALL and self._serve is not None:
                    self._serve(self, entry[1], entry[3], read_call(entry[2]).message)
            time.sleep(0.001)


def echo(server: Server, connection: int, stream: int, message: bytes) -> None:
    server.handle.reply(connection, stream, reply_message(message, last=True))


@contextmanager
def server(serve: Serve | None = echo, **settings: Any) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.setblocking(False)
        sessions = http2_sessions(CallCodec(), message_max=MESSAGE_MAX)
        lane = Lane([listener.fileno()], LaneSink(), http2=sessions, **settings)
        made = Server(lane, listener.getsockname(), serve)
        try:
            yield made
        finally:
            made.stop()


@contextmanager
def connected(serve: Serve | None = echo, **settings: Any) -> Iterator[tuple[Server, Peer]]:
    with server(serve, **settings) as made:
        peer = Peer(made.address)
        try:
            yield made, peer
        finally:
            peer.close()


def test_the_loop_gets_a_call_with_what_its_client_says() -> None:
    with connected() as (made, peer):
        stream = peer.call(b"hello", x_mq_client_id="me@1", x_mq_language="PYTHON", other="no")
        answer = peer.answer(stream)
        assert answer.messages == [b"hello"]
        assert answer.headers[":status"] == "200"
        assert answer.headers["content-type"] == "application/grpc"
        assert answer.status == "0"
        fields, message, is_last = read_call(made.of_kind(Kind.CALL)[0][2])
        assert (message, is_last) == (b"hello", True)
        assert not made.of_kind(Kind.CALL_CLOSED)
        assert fields == {
            CallField.PATH: PATH,
            CallField.AUTHORITY: "here",
            CallField.CLIENT_ID: "me@1",
            CallField.LANGUAGE: "PYTHON",
        }


def test_remoting_and_http2_share_a_port() -> None:
    frame = RemotingCommand(code=1).encode()
    with connected() as (made, peer):
        with socket.create_connection(made.address, timeout=20) as remoting:
            remoting.sendall(frame)
            made.wait(lambda: made.of_kind(Kind.FRAME))
        assert peer.answer(peer.call(b"x")).messages == [b"x"]
        assert made.of_kind(Kind.FRAME)[0][2] == frame


def test_a_request_of_a_browser_is_refused() -> None:
    with server() as made:
        host, port = made.address
        shown = subprocess.run(
            ["curl", "-sSi", "-m", "20", "--http2-prior-knowledge", f"http://{host}:{port}/"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert shown.startswith("HTTP/2 415")
        assert "this port serves gRPC" in shown


def test_an_official_client_of_grpc_calls_and_streams() -> None:
    def serve(made: Server, connection: int, stream: int, message: bytes) -> None:
        for number in range(int(message)):
            made.handle.reply(connection, stream, reply_message(b"%d" % number, last=False))
        status = GrpcStatus.UNAVAILABLE if message == b"2" else GrpcStatus.OK
        made.handle.reply(connection, stream, reply_end(status, "gone: 50 % ü"))

    with server(serve) as made, grpc.insecure_channel(made.target) as channel:
        stream = channel.unary_stream(PATH)
        assert list(stream(b"1000", timeout=20)) == [b"%d" % number for number in range(1000)]
        found = []
        with pytest.raises(grpc.RpcError) as caught:
            for message in stream(b"2", timeout=20):
                found.append(message)
        assert found == [b"0", b"1"]
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "gone: 50 % ü"


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.integers(1, 60))
def test_messages_of_a_stream_may_come_in_any_pieces(messages: list[bytes], size: int) -> None:
    data = b"".join(map(framed, messages))

    def serve(made: Server, connection: int, stream: int, message: bytes) -> None:
        made.handle.reply(connection, stream, reply_message(message, last=False))

    with connected(serve) as (made, peer):
        stream = peer.begin()
        for at in range(0, len(data), size):
            peer.send(stream, data[at : at + size], last=False)
        peer.wait(lambda: peer.answers[stream].messages == messages)
        peer.send(stream, b"")
        made.wait(lambda: made.of_kind(Kind.CALL_CLOSED))
        assert made.handle.unfinished_bytes == 0


def test_a_large_message_passes_and_a_larger_one_is_refused() -> None:
    with connected() as (_, peer):
        message = bytes(range(256)) * (MESSAGE_MAX // 256)
        assert peer.answer(peer.call(message)).messages == [message]
        stream = peer.begin()
        peer.send(stream, framed(message + b"x")[:100], last=False)
        assert peer.answer(stream).status == str(int(GrpcStatus.RESOURCE_EXHAUSTED))
        assert peer.answer(peer.call(b"still here")).messages == [b"still here"]


def test_faulty_requests_get_a_status_and_the_connection_goes_on() -> None:
    with connected() as (made, peer):
        compressed = peer.begin()
        peer.send(compressed, b"\1" + framed(b"x")[1:])
        assert peer.answer(compressed).status == str(int(GrpcStatus.UNIMPLEMENTED))
        cut = peer.begin()
        peer.send(cut, framed(b"xyz")[:-1])
        assert peer.answer(cut).status == str(int(GrpcStatus.INTERNAL))
        empty = peer.begin()
        peer.send(empty, b"")
        assert peer.answer(empty).status == str(int(GrpcStatus.INTERNAL))
        long = peer.begin(x_mq_client_id="x" * 9000)
        peer.flush()
        assert peer.answer(long).reset is not None
        assert peer.answer(peer.call(b"ok")).messages == [b"ok"]
        assert made.handle.unfinished_bytes == 0


def test_an_answer_waits_for_the_peers_window_and_calls_wait_for_the_answer() -> None:
    size = 3 * MIB

    def serve(made: Server, connection: int, stream: int, message: bytes) -> None:
        made.handle.reply(connection, stream, reply_message(bytes(size), last=True))

    with server(serve) as made:
        peer = Peer(made.address, reads_all=False)
        stream = peer.call(b"")
        answer = peer.answers[stream]
        peer.wait(lambda: len(answer.data) == 65535)
        number = made.entries[0][1]
        made.wait(lambda: made.of_kind(Kind.UNWRITABLE))
        assert made.handle.unsent(number, 0) >= size - 65535
        # It does not read answers, but what it says is still read.
        peer.h2.ping(b"12345678")
        peer.flush()
        peer.wait(lambda: peer.pongs)
        peer.reads_all = True
        peer.h2.acknowledge_received_data(65535, stream)
        peer.flush()
        assert len(peer.answer(stream).messages[0]) == size
        made.wait(lambda: made.of_kind(Kind.WRITABLE))
        assert made.handle.unsent(number, 0) == 0
        peer.close()


def test_the_loop_learns_of_a_cancelled_call_and_its_answer_goes_nowhere() -> None:
    with connected(serve=None) as (made, peer):
        stream = peer.call(b"x")
        made.wait(lambda: made.of_kind(Kind.CALL))
        peer.h2.reset_stream(stream, error_code=8)
        peer.flush()
        made.wait(lambda: made.of_kind(Kind.CALL_ENDED))
        _, connection, _, number = made.of_kind(Kind.CALL_ENDED)[0]
        assert number == stream
        made.handle.reply(connection, stream, reply_message(b"late", last=True))
        peer.h2.ping(b"12345678")
        peer.flush()
        peer.wait(lambda: peer.pongs)
        assert not peer.answers[stream].data


def test_a_lane_that_stops_listening_says_goaway() -> None:
    with connected() as (made, peer):
        stream = peer.call(b"x")
        assert peer.answer(stream).ended
        made.handle.stop_listening()
        peer.wait(lambda: peer.gone is not None)
        assert (peer.gone, peer.last_stream) == (0, stream)
        made.wait(lambda: made.lane.connections == 0)


def test_a_lane_that_stops_listening_finishes_calls() -> None:
    with (
        server(serve=None) as made,
        grpc.insecure_channel(made.target) as channel,
    ):
        call = channel.unary_unary(PATH).future(b"x", timeout=20)
        made.wait(lambda: made.of_kind(Kind.CALL))
        made.handle.stop_listening()
        _, connection, _, stream = made.of_kind(Kind.CALL)[0]
        made.handle.reply(connection, stream, reply_message(b"done", last=True))
        assert call.result() == b"done"
        made.wait(lambda: made.lane.connections == 0)


def test_a_message_that_does_not_become_whole_is_cut() -> None:
    with connected(frame_timeout_s=0.3) as (made, peer):
        assert peer.answer(peer.call(b"x")).messages == [b"x"]
        stream = peer.begin()
        peer.send(stream, framed(bytes(100))[:50], last=False)
        made.wait(lambda: made.handle.unfinished_bytes == 50)
        made.wait(lambda: made.of_kind(Kind.CUT_LATE))
        made.wait(lambda: made.lane.connections == 0)
        assert made.handle.unfinished_bytes == 0


def test_incomplete_messages_have_a_bound_for_all_streams() -> None:
    with connected(unfinished_max=2 * MIB) as (made, peer):
        for _ in range(20):
            stream = peer.begin()
            try:
                peer.send(stream, framed(bytes(MIB))[: MIB // 2], last=False)
            except OSError:
                break
            except AssertionError:
                break
        made.wait(lambda: made.of_kind(Kind.CUT_LARGE))
        made.wait(lambda: made.lane.connections == 0)
        assert made.handle.unfinished_bytes == 0


def test_calls_that_find_the_loop_busy_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        sessions = http2_sessions(CallCodec(), message_max=MESSAGE_MAX)
        lane = Lane([listener.fileno()], LaneSink(), http2=sessions, entries_max=10)
        thread = threading.Thread(target=lane.run)
        thread.start()
        try:
            peer = Peer(listener.getsockname())
            streams = [peer.call(b"x") for _ in range(12)]
            refused = peer.answer(streams[-1])
            assert refused.status == str(int(GrpcStatus.RESOURCE_EXHAUSTED))
            assert len(lane.handle.take_entries()) == 10
            peer.close()
        finally:
            lane.handle.stop()
            thread.join()


def test_a_peer_that_opens_too_many_streams_is_cut() -> None:
    with connected() as (_, peer), server(serve=None) as other:
        many = Peer(other.address)
        many.wait(lambda: many.h2.remote_settings.max_concurrent_streams == 1000)
        for _ in range(1000):
            many.call(b"x")
        other.wait(lambda: len(other.of_kind(Kind.CALL)) == 1000)
        many.h2.remote_settings.update({SettingCodes.MAX_CONCURRENT_STREAMS: 5000})
        many.h2.remote_settings.acknowledge()
        try:
            while True:
                many.call(b"x")
        except OSError:
            pass
        other.wait(lambda: other.lane.connections == 0)
        assert len(other.of_kind(Kind.CALL)) == 1000
        assert peer.answer(peer.call(b"x")).messages == [b"x"]
        many.close()
