"""Repeats requests while a server restarts."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from congreve.base.errors import CongreveError

RETRY_S = 30.0
"""How long a request is repeated, in seconds."""
PAUSE_S = 0.5
"""Pause between two attempts, in seconds."""

T = TypeVar("T")


def retry(
    ask: Callable[[], T],
    is_retryable: Callable[[CongreveError], bool],
    on_retry: Callable[[CongreveError], None],
) -> T:
    """Return the result of `ask`; repeat it for up to RETRY_S seconds while `is_retryable` accepts
    its error.

    `on_retry` gets each such error before the pause. Raises the last error, or the first that is
    not retryable.
    """
    deadline = monotonic() + RETRY_S
    while True:
        try:
            return ask()
        except CongreveError as error:
            if not is_retryable(error) or monotonic() >= deadline:
                raise
            on_retry(error)
        sleep(PAUSE_S)
