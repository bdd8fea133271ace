"""The console's own audit log, and the audit lines of a broker's log file."""

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from congreve.base.errors import CongreveError

if TYPE_CHECKING:
    from congreve.console.web.pages import Visit

logger = logging.getLogger(__name__)

ENTRIES_MAX = 1_000
"""Changes that the page shows; the log has all."""
TAIL_BYTES = 1 << 20
LINES_MAX = 500


class Entry(msgspec.Struct, frozen=True):
    """A change that a user made: `at_ms` since 1970, `target` without secrets and bodies."""

    at_ms: int
    user: str
    address: str
    action: str
    target: str


class ConsoleAudit:
    """Writes a line of JSON for each change, and keeps the newest for the page.

    With a `path` the lines are also appended to that file, and its end is read first. Raises
    CongreveError if it cannot be used.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._path = path
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        if path is not None:
            try:
                path.touch(mode=0o600)
                self._entries.extend(_entries(_last_lines(path)))
            except OSError as error:
                why = f"cannot use the audit log {path}: {error.strerror}"
                raise CongreveError(why) from error

    def note(self, visit: "Visit", action: str, target: str) -> None:
        """Note a change of a logged-in user, or of one without an account."""
        client = visit.request.client
        self.note_for(visit.access_key or "-", client.host if client else "-", action, target)

    def note_for(self, user: str, address: str, action: str, target: str) -> None:
        """Note an event such as a login."""
        entry = Entry(int(self._clock() * 1000), user, address, action, target)
        self._entries.append(entry)
        line = msgspec.json.encode(entry)
        logger.info("%s", line.decode())
        if self._path is not None:
            try:
                with self._path.open("ab") as file:
                    file.write(line + b"\n")
            except OSError as error:
                logger.error("cannot write to %s: %s", self._path, error.strerror)

    def entries(self) -> list[Entry]:
        """The newest entries, newest first."""
        return list(reversed(self._entries))


def broker_lines(path: Path) -> list[dict[str, Any]]:
    """The newest audit lines at the end of a broker's log, newest first.

    Other lines are left out. Raises OSError when the file cannot be read.
    """
    found = []
    for line in reversed(_last_lines(path)):
        entry = audit_entry(line)
        if entry is not None:
            found.append(entry)
        if len(found) == LINES_MAX:
            break
    return found


def _last_lines(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - TAIL_BYTES))
        return file.read().splitlines()


def _entries(lines: list[bytes]) -> Iterator[Entry]:
    """The entries of a console's audit file; a line that was cut off is left out."""
    for line in lines[-ENTRIES_MAX:]:
        with suppress(msgspec.DecodeError):
            yield msgspec.json.decode(line, type=Entry)


def audit_entry(line: bytes) -> dict[str, Any] | None:
    """A line of the broker's audit logger, None for another."""
    start = line.find(b"{")
    if start < 0:
        return None
    try:
        entry = json.loads(line[start:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not {"time", "accessKey", "request"} <= entry.keys():
        return None
    entry["time"] = entry["time"] if isinstance(entry["time"], int) else 0
    return entry
