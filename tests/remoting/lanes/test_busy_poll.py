"""When a lane may poll: until another thread needs the core."""

from congreve.remoting.lanes.busy_poll import BusyPoll

US, MS, S = 10**3, 10**6, 10**9


def test_polls_end_with_the_window() -> None:
    poll = BusyPoll(100e-6)
    assert not poll.is_due(S)
    poll.expect_more(S)
    assert poll.is_due(S + 99 * US)
    assert not poll.is_due(S + 100 * US)
    assert poll.is_allowed(S + 100 * US)


def test_a_thread_that_lost_its_core_pauses() -> None:
    poll = BusyPoll(100e-6)
    poll.expect_more(S)
    poll.polled(S, 0)
    assert poll.is_due(S)
    poll.polled(S + US, 1)
    poll.expect_more(S + US)
    assert not poll.is_due(S + US)
    assert not poll.is_allowed(S + US + 10 * MS - 1)
    assert poll.is_allowed(S + US + 10 * MS)
    poll.polled(S + 30 * MS, 1)
    assert poll.is_allowed(S + 30 * MS)


def test_pauses_grow_while_the_core_is_wanted_and_start_again_short() -> None:
    poll = BusyPoll(100e-6)
    now, pauses = S, []
    for lost in range(1, 13):
        poll.polled(now, lost)
        begin = now
        while not poll.is_allowed(now):
            now += MS
        pauses.append((now - begin) // MS)
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 1000, 1000]
    now += 1001 * MS
    poll.polled(now, 13)
    assert not poll.is_allowed(now + 9 * MS)
    assert poll.is_allowed(now + 10 * MS)
