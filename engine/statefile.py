"""Small text files that are replaced as a whole and survive a power cut at any moment."""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import msgspec

from congreve.engine.errors import StoreError, StoreFormatError
from congreve.errors import CongreveError

T = TypeVar("T")
log = logging.getLogger(__name__)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable; OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class StateFile:
    """One state file with its predecessor beside it as NAME.bak (RocketMQ: ConfigManager).

    At every moment NAME holds a whole old or a whole new text: the new one is written and synced
    as NAME.tmp, then renamed, then the folder is synced.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.backup_path = path + ".bak"
        self._damaged = False  # NAME is unreadable: it must not push a good .bak away

    def load(self, parse: Callable[[str], T]) -> T | None:
        """What `parse` makes of the file, else of its .bak; None where neither exists.

        `parse` raises ValueError, msgspec's or our errors for a text that it cannot use. Raises
        StoreFormatError where the newest readable thing is damaged and nothing can replace it.
        """
        failures = []
        for path in (self.path, self.backup_path):
            try:
                with open(path, encoding="utf-8") as file:
                    text = file.read()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"cannot read {path}: {error.strerror}") from error
            except UnicodeDecodeError as error:
                failures.append(f"{path} is damaged ({error})")
                self._damaged |= path == self.path
                continue
            if not text.strip("\0 \t\r\n"):
                log.warning("%s is empty; ignored", path)
                self._damaged |= path == self.path
                continue
            try:
                value = parse(text)
            except (ValueError, msgspec.MsgspecError, CongreveError) as error:
                failures.append(f"{path} is damaged ({error})")
                self._damaged |= path == self.path
                continue
            if path == self.backup_path and self._damaged:
                log.warning("%s is unreadable; took its backup %s", self.path, path)
            return value
        if failures:
            raise StoreFormatError(
                "; ".join(failures) + ": repair it, or move it away to start without it"
            )
        return None

    def replace(self, text: str) -> None:
        """Durable when it returns; StoreError leaves the old text in place."""
        temporary = self.path + ".tmp"
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if not self._damaged:
                self._keep_backup()
            os.replace(temporary, self.path)
            sync_folder(os.path.dirname(self.path))
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        self._damaged = False

    def _keep_backup(self) -> None:
        # A second name for the old text, moved into place in one step.
        link = self.backup_path + ".tmp"
        with suppress(FileNotFoundError):
            os.unlink(link)
        try:
            os.link(self.path, link)
        except FileNotFoundError:
            return
        os.replace(link, self.backup_path)
