"""The epochs of a store, and the last election that its member has asked for, on disk."""

import os
import threading

import msgspec

from congreve.engine.config import StoreConfig
from congreve.engine.state.epochs import EpochFile, Epochs
from congreve.engine.state.state_file import DISK, FileSystem, StateFile


class _Claim(msgspec.Struct):
    """The text of congreve/election.json."""

    epoch: int = 0


class EpochLog:
    """Reads both files once; a change is on disk when its call returns.

    Raises StoreError or StoreFormatError as EpochFile does. (RocketMQ: EpochFileCache.)
    """

    def __init__(self, config: StoreConfig, files: FileSystem = DISK) -> None:
        self._file = EpochFile(os.path.join(config.root_dir, "epochFileCheckpoint"), files)
        path = os.path.join(config.root_dir, "congreve", "election.json")
        self._claim_file = StateFile(path, files=files)
        self._lock = threading.Lock()
        self.epochs = Epochs()
        self.claimed = 0
        """The epoch of the last election that this member has asked for."""

    def load(self) -> None:
        """Read the files."""
        self.epochs = self._file.load()
        claim = self._claim_file.load(lambda text: msgspec.json.decode(text, type=_Claim))
        self.claimed = 0 if claim is None else claim.epoch

    def save(self, epochs: Epochs) -> None:
        """Replace the epochs."""
        with self._lock:
            if epochs != self.epochs:
                self._file.save(epochs)
                self.epochs = epochs

    def claim(self, epoch: int) -> None:
        """Note that this member asks to be the master of this epoch."""
        self._claim_file.replace(msgspec.json.encode(_Claim(epoch)).decode())
        self.claimed = epoch
