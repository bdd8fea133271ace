"""How long a loop stays awake, with a simulated clock and loop."""

from congreve.remoting.transport.busy_poll import SMALL_CHUNK, BusyPoll


class Loop:
    """Counts its turns; each takes 10 us of the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due = []

    def call_soon(self, callback) -> None:
        self.due.append(callback)

    def turns_until_asleep(self) -> int:
        turns = 0
        while self.due:
            turns += 1
            self.now += 10e-6
            self.due.pop()()
        return turns


def test_the_loop_stays_awake_for_its_time_after_the_last_small_chunk():
    loop = Loop()
    poll = BusyPoll(loop, 50e-6, lambda: loop.now)
    poll.chunk_served(100)
    assert loop.turns_until_asleep() in (5, 6)
    poll.chunk_served(100)
    loop.now += 30e-6
    poll.chunk_served(SMALL_CHUNK)
    assert len(loop.due) == 1
    assert loop.turns_until_asleep() in (5, 6)


def test_neither_large_chunks_nor_a_time_of_zero_keep_the_loop_awake():
    loop = Loop()
    BusyPoll(loop, 50e-6, lambda: loop.now).chunk_served(SMALL_CHUNK + 1)
    BusyPoll(loop, 0.0, lambda: loop.now).chunk_served(1)
    assert loop.turns_until_asleep() == 0
