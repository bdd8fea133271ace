"""The ids of a lane's connections."""

from congreve.remoting.lanes.connections import next_id

PLACE = 5
MAILBOX = 1 << 62
"""The first id of an event that is not about a connection."""


def test_ids_of_a_place_stay_below_those_of_other_events() -> None:
    assert next_id(PLACE) == (1 << 32) + PLACE
    last = (MAILBOX - (1 << 32)) + PLACE
    assert next_id(last - (1 << 32)) == last < MAILBOX
    assert next_id(last) == PLACE
