"""What messages that are out cost (run: pytest -s bench/test_pops.py)."""

import time

import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.base.clock import ManualClock
from congreve.broker.pop.lanes.acks import LaneAcks
from congreve.engine.pop.in_flight import InFlight, PopWindow
from congreve.engine.pop.limits import PopLimits
from congreve.records.message.pop_handle import PopHandle, PoppedFrom
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand

QUEUES = 10
POP = 32
"""Messages of one pop."""
OUT = 10_000_000
ACKNOWLEDGED = 200_000
SLOW_QUEUE = 1_000_000
SLOW_BYTES_MAX = 64 << 20
BLOCK = 10_000
BYTES_MAX = 32
"""A message out that no other is alike; these are 32 alike."""
RATIO_MAX = 3
"""Of what a lane does for an acknowledgement; popspeed has whole requests."""


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss"))


def filled(count: int) -> tuple[InFlight, list[PopWindow]]:
    pops = InFlight(PopLimits())
    windows = [pops.window("group", "topic", queue, 0) for queue in range(QUEUES)]
    for first in range(0, count // QUEUES, POP):
        end = min(first + POP, count // QUEUES)
        for window in windows:
            window.take(numpy.arange(first, end), end, first, 60_000)
        pops.take_journal()
    return pops, windows


def frame(place: int) -> bytes:
    """The acknowledgement of a message, by its place in the sequence of all queues' messages."""
    offset, queue = divmod(place, QUEUES)
    first = offset // POP * POP
    handle = PopHandle(
        start_offset=first,
        pop_ms=first,
        invisible_ms=60_000,
        revive_queue_id=0,
        kind=PoppedFrom.TOPIC,
        broker_name="broker-a",
        queue_id=queue,
        offset=offset,
    )
    fields = {"consumerGroup": "group", "topic": "topic", "queueId": str(queue)}
    fields |= {"offset": str(offset), "extraInfo": handle.encode()}
    return RemotingCommand(code=RequestCode.ACK_MESSAGE, ext_fields=fields).encode()


def acknowledge(pops: InFlight, order: NDArray[int64]) -> float:
    """CPU seconds a message, as a lane serves its request."""
    lane = LaneAcks(pops, ManualClock(0))
    frames = list(map(frame, order.tolist()))
    began = time.process_time()
    for number, request in enumerate(frames):
        answer = lane.take(request)
        if number % POP == 0:
            pops.take_journal()
    assert answer is not None
    return (time.process_time() - began) / len(order)


def test_ten_million_messages_out_fit_into_a_gibibyte() -> None:
    before = resident()
    pops, _ = filled(OUT)
    bytes_each = (resident() - before) / OUT
    assert pops.out == OUT
    snapshot = len(pops.snapshot()) / OUT
    print(f"\n{OUT:,} out: {bytes_each:.1f} bytes each, {snapshot:.2f} in a snapshot")
    assert bytes_each <= BYTES_MAX
    in_order = acknowledge(pops, numpy.arange(ACKNOWLEDGED))
    others = numpy.random.default_rng(1).permutation(OUT - ACKNOWLEDGED)[:ACKNOWLEDGED]
    at_random = acknowledge(pops, ACKNOWLEDGED + others)
    assert pops.out == OUT - 2 * ACKNOWLEDGED
    print(
        f"an acknowledgement: {in_order * 1e9:.0f} ns in order, {at_random * 1e9:.0f} ns at random"
    )
    assert at_random <= RATIO_MAX * in_order


def test_one_slow_message_keeps_no_memory() -> None:
    pops = InFlight(PopLimits())
    window = pops.window("group", "topic", 0, 0)
    window.take(numpy.arange(1), 1, 0, 60_000)  # it stays out
    before = most = resident()
    for first in range(1, SLOW_QUEUE, POP):
        offsets = numpy.arange(first, first + POP)
        window.take(offsets, first + POP, first, 60_000)
        window.ack_all(offsets, first)
        pops.take_journal()
        if first % BLOCK < POP:
            most = max(most, resident())
    assert (window.out, window.begin) == (1, 0)
    print(f"\none of {SLOW_QUEUE:,} is slow: {(most - before) / 2**20:.1f} MiB more")
    assert most - before <= SLOW_BYTES_MAX
