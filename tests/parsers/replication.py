"""Parsers of the frames between a master and its slaves, and of the files about them."""

from __future__ import annotations

from collections.abc import Iterator

from congreve.base.errors import CongreveError
from congreve.broker.election.frames import (
    MasterHandshake,
    Report,
    SlaveHandshake,
    StoreName,
    Transfer,
    from_master,
    from_slave,
)
from congreve.broker.hand_over.greeting import client_frame, client_in
from congreve.broker.repair.frames import WHOLE, Fetch, Fetched, frame_in
from congreve.engine.log.named_record import NamedRecord
from congreve.engine.recovery.scan import LogScanner
from congreve.engine.state.epochs import Epoch, Epochs, decode_epochs, encode_epochs

from .messages import RECORDS
from .parser import Parser, text


def _received(data: bytes) -> object:
    """The check of the bytes that a slave has received, before they are part of its log."""
    scanner = LogScanner(grows=True, report=lambda _: None)
    return scanner.scan(data, 0, 0), scanner.position


def parsers() -> Iterator[Parser]:
    """All parsers of this module."""
    yield Parser("log of a master", ("engine/recovery/scan.pyx",), _received, RECORDS)
    epochs = Epochs((Epoch(1, 0), Epoch(2, 500)))
    slave_frames = StoreName("ab" * 16), SlaveHandshake(1), Report(7)
    transfer = Transfer(9, 500, Epoch(2, 500), 400).encode()
    for name, parse, seeds in (
        ("slave", from_slave, [each.encode() for each in slave_frames]),
        ("master", from_master, [MasterHandshake(9, 2, epochs).encode(), transfer]),
    ):
        yield Parser(f"AutoSwitch frames of a {name}", ("broker/election/frames.py",), parse, seeds)
    yield Parser(
        "frames of repairs",
        ("broker/repair/frames.py",),
        frame_in,
        [
            Fetch(500, 900, NamedRecord(300, 200, 7, 1_700_000_000_000)).encode(),
            Fetched(500, WHOLE, 900, 400).encode(),
        ],
    )
    yield Parser(
        "addresses of clients in a hand-over",
        ("broker/hand_over/greeting.py",),
        client_in,
        [client_frame(("127.0.0.1", 10911)), client_frame(("2001:db8::7", 1))],
    )
    yield Parser(
        "file of epochs",
        ("engine/state/epochs.py",),
        lambda data: decode_epochs(text(data)),
        [encode_epochs(epochs.entries).encode(), b"1\n0\n3-70\n"],
        (CongreveError, ValueError),
    )
