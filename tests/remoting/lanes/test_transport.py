"""The loop's end of a lane's connection."""

from __future__ import annotations

from congreve.remoting.lanes.lane import Lane, LaneSink
from congreve.remoting.lanes.transport import LaneTransport


class Protocol:
    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def connection_made(self, transport: object) -> None:
        pass

    def take_frame(self, frame: bytes) -> None:
        self.frames.append(frame)


def test_frames_that_arrive_while_reading_is_paused_wait_and_are_counted() -> None:
    transport, protocol = LaneTransport(Lane([], LaneSink()).handle, 0, ("peer", 1)), Protocol()
    transport.connect(protocol)  # type: ignore[arg-type]
    transport.pause_reading()
    for frame in (b"one", b"three"):
        transport.frame_arrived(frame, 0)
    assert (protocol.frames, transport.get_extra_info("held_bytes")) == ([], 8)
    transport.resume_reading()
    assert (protocol.frames, transport.get_extra_info("held_bytes")) == ([b"one", b"three"], 0)
    assert transport.get_extra_info("peername") == ("peer", 1)
