"""Keys that a user presses while a screen is shown."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any

KEY_BYTES = 16
"""Most bytes that one key sends; a held key may send several at once."""


class Keys:
    """Reads keys from the terminal at stdin, if it is one, without waiting for a line's end."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] | None = None

    def __enter__(self) -> Keys:
        if self._descriptor is not None:
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None and self._before is not None:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def next(self, seconds: float) -> str:
        """What was pressed within so many seconds; the empty text if nothing was."""
        descriptors = [] if self._descriptor is None else [self._descriptor]
        if not select.select(descriptors, [], [], seconds)[0]:
            return ""
        pressed = os.read(descriptors[0], KEY_BYTES)
        if not pressed:  # the terminal is gone
            self._descriptor = None
        return pressed.decode(errors="replace")
