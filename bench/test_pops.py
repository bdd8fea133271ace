"""What messages that are out cost (run: pytest -s bench/test_pops.py)."""

import time

import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.engine.pop.in_flight import InFlight, PopWindow
from congreve.engine.pop.limits import PopLimits
from congreve.records.message.pop_handle import PopHandle, PoppedFrom

QUEUES = 10
POP = 32
"""Messages of one pop."""
OUT = 10_000_000
ACKNOWLEDGED = 500_000
BLOCK = 100_000
BYTES_MAX = 107
"""A message out: ten million within 1 GiB."""
RATIO_MAX = 2


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


def handle(place: int) -> str:
    """Of a message, by its place in the sequence of all queues' messages."""
    offset, queue = divmod(place, QUEUES)
    first = offset // POP * POP
    return PopHandle(
        start_offset=first,
        pop_ms=first,
        invisible_ms=60_000,
        revive_queue_id=0,
        kind=PoppedFrom.TOPIC,
        broker_name="broker-a",
        queue_id=queue,
        offset=offset,
    ).encode()


def acknowledge(order: NDArray[int64]) -> float:
    """CPU seconds a message; a request is what its handle says, 32 of them a record."""
    pops, windows = filled(ACKNOWLEDGED)
    seconds = 0.0
    for block in range(0, len(order), BLOCK):
        handles = list(map(handle, order[block : block + BLOCK].tolist()))
        began = time.process_time()
        for place, text in enumerate(handles):
            one = PopHandle.decode(text)
            windows[one.queue_id].ack(one.offset, one.pop_ms)
            if place % POP == 0:
                pops.take_journal()
        seconds += time.process_time() - began
    assert pops.out == 0
    return seconds / len(order)


def test_ten_million_messages_out_fit_into_a_gibibyte() -> None:
    before = resident()
    pops, _ = filled(OUT)
    bytes_each = (resident() - before) / OUT
    assert pops.out == OUT
    snapshot = len(pops.snapshot()) / OUT
    print(f"\n{OUT:,} out: {bytes_each:.1f} bytes each, {snapshot:.2f} in a snapshot")
    assert bytes_each <= BYTES_MAX


def test_acknowledgements_in_any_order_cost_at_most_twice() -> None:
    in_order = acknowledge(numpy.arange(ACKNOWLEDGED))
    at_random = acknowledge(numpy.random.default_rng(1).permutation(ACKNOWLEDGED))
    print(
        f"\nan acknowledgement: {in_order * 1e9:.0f} ns in order, "
        f"{at_random * 1e9:.0f} ns at random"
    )
    assert at_random <= RATIO_MAX * in_order
