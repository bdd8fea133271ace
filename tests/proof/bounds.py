"""The bounds that are explored to their end: small ones in each test run, large ones in a soak."""

from __future__ import annotations

from .going_on import at_rest
from .group import Bound, Group
from .state import State
from .steps import Steps

SMALL = (
    Bound(2, messages=1, stops=1, lost_ends=0, late=0),
    Bound(2, prompt=True, messages=3, stops=1, late=0),
    Bound(2, min_in_sync=2, prompt=True, messages=2, stops=1, late=0),
    Bound(3, prompt=True, messages=1, stops=1, lost_ends=0, late=0),
)
LARGE = (
    Bound(2, prompt=True),
    Bound(2, min_in_sync=2, prompt=True),
    Bound(2, messages=2, stops=1, lost_ends=0, late=0),
    Bound(3, prompt=True, messages=3, stops=1, lost_ends=0, late=0),
    Bound(3, prompt=True, messages=1, late=0),
    Bound(3, min_in_sync=2, prompt=True, messages=1, late=0),
)


def begin(bound: Bound) -> State:
    """A group whose members are all in sync, before the first message."""
    return at_rest(Steps(bound), Group.new(bound))
