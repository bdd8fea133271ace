"""What clients saw under faults is what one append-only log would have shown them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from cuts.disks import Disks, NoDisksError
from harness import build
from histories import porcupine
from histories.campaigns import Group, OneBroker, Pair, disks_of

LOG, REGISTER = "T/0", "c@T/0"
NEVER, UNKNOWN = 0, -1

Operation = tuple[str, int, list[int], int, int]
"""Kind, offset, values, and the times of the request and of its answer."""


@pytest.fixture(scope="module", autouse=True)
def go() -> None:
    if build.missing_tools("go"):
        pytest.skip("not installed: go")


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks | None]:
    """None where none can be made: then no power is cut."""
    try:
        made = Disks(tmp_path_factory.mktemp("disks"))
    except NoDisksError:
        yield None
        return
    with made:
        yield made


def are_linearizable(folder: Path, operations: list[Operation]) -> bool:
    """With a client for each operation."""
    rows = [
        {
            **{"client": client, "kind": kind, "values": values, "offset": offset},
            **{"queue": REGISTER if kind.startswith("commit") else LOG},
            **{"call": call, "return": end},
        }
        for client, (kind, offset, values, call, end) in enumerate(operations)
    ]
    file = folder / "history"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return not porcupine.faults([file])


LINEARIZABLE: dict[str, list[Operation]] = {
    "two appends at the same time": [
        ("append", 1, [10], 1, 4),
        ("append", 0, [11], 2, 3),
        ("read", 0, [11, 10], 5, 6),
    ],
    "an append without an answer that happened": [
        ("append", UNKNOWN, [10], 1, NEVER),
        ("append", 1, [11], 2, 3),
        ("read", 0, [10, 11], 4, 5),
    ],
    "an append without an answer that did not happen": [
        ("append", UNKNOWN, [10], 1, NEVER),
        ("append", 0, [11], 2, 3),
        ("read", 0, [11], 4, 5),
    ],
    "an offset that was committed or not": [
        ("committed", -1, [], 1, 2),
        ("commit", 5, [], 3, NEVER),
        ("committed", -1, [], 4, 5),
        ("committed", 5, [], 6, 7),
    ],
}
WRONG: dict[str, list[Operation]] = {
    "an acknowledged message is lost": [
        ("append", 0, [10], 1, 2),
        ("append", 0, [11], 3, 4),
        ("read", 0, [11], 5, 6),
    ],
    "another message has its place": [
        ("append", 0, [10], 1, 2),
        ("append", 1, [11], 3, 4),
        ("read", 0, [10, 12], 5, 6),
    ],
    "what was read is gone": [
        ("append", UNKNOWN, [10], 1, NEVER),
        ("read", 0, [10], 2, 3),
        ("append", 0, [11], 4, 5),
        ("read", 0, [11], 6, 7),
    ],
    "a later append is before an earlier one": [
        ("append", 1, [10], 1, 2),
        ("append", 0, [11], 3, 4),
        ("read", 0, [11, 10], 5, 6),
    ],
    "a message is there twice": [
        ("append", 0, [10], 1, 2),
        ("read", 0, [10, 10], 3, 4),
    ],
    "a message is read before it is sent": [
        ("read", 0, [10], 1, 2),
        ("append", 0, [10], 3, 4),
    ],
    "an offset goes back": [
        ("commit", 5, [], 1, 2),
        ("commit", 6, [], 3, 4),
        ("committed", 5, [], 5, 6),
    ],
}


@pytest.mark.parametrize("operations", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_the_checker_accepts_what_a_log_may_show(
    tmp_path: Path, operations: list[Operation]
) -> None:
    assert are_linearizable(tmp_path, operations)


@pytest.mark.parametrize("operations", WRONG.values(), ids=WRONG)
def test_the_checker_finds(tmp_path: Path, operations: list[Operation]) -> None:
    assert not are_linearizable(tmp_path, operations)


@pytest.mark.crash
@pytest.mark.parametrize("kind", [OneBroker, Pair])
def test_histories_are_linearizable(tmp_path: Path, kind: type[OneBroker | Pair]) -> None:
    files = asyncio.run(kind(tmp_path, random.Random(1)).histories(2, tmp_path))
    assert not porcupine.faults(files)


@pytest.mark.crash
def test_histories_of_a_group_are_linearizable(tmp_path: Path, disks: Disks | None) -> None:
    group = Group(tmp_path, disks_of(disks), random.Random(1))
    files = asyncio.run(group.histories(2, tmp_path))
    assert not porcupine.faults(files)
