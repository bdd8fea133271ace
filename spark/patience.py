"""Waiting for servers that went away for a while: a broker or a name server that starts again."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from congreve.errors import CongreveError

PATIENCE_S = 30.0
"""So long streams and tasks wait."""
PAUSE_S = 0.5
"""Between two tries."""

T = TypeVar("T")


def patiently(
    ask: Callable[[], T],
    waits_for: Callable[[CongreveError], bool],
    before_again: Callable[[CongreveError], None],
) -> T:
    """The answer to `ask`, which is asked again for PATIENCE_S while `waits_for` its error.

    `before_again` is told each error that is waited for, before the pause. What is not waited
    for, and the last error, is raised.
    """
    deadline = monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except CongreveError as error:
            if not waits_for(error) or monotonic() >= deadline:
                raise
            before_again(error)
        sleep(PAUSE_S)
