"""Every step of persistence: the process ends before or after it, or the step fails.

The store's process and its files are real. failpoints/failpoints.c, between the process and the C
library, makes calls on the log's segments fail; a FaultyFileSystem in the process makes calls on
all other files fail.
"""

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from failpoints import preload, writer

from congreve.engine.state.state_file import StateFile
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.io_backends.backends import BACKENDS, refusal
from congreve.records.record import decode_record

SEGMENTS = "commitlog"
SEGMENT_STEPS = [(call, SEGMENTS) for call in ("open", "fallocate", "write", "sync", "rename")]
STEPS = [
    *SEGMENT_STEPS,
    *(("create_map", name) for name in ("consumequeue", "index")),
    *(("reserve", name) for name in ("consumequeue", "index")),
    *(("write", name) for name in ("checkpoint", "config")),
    *(("sync", name) for name in ("consumequeue", "index", "checkpoint", "config")),
    ("rename", "config"),
    ("link", "config"),
    ("remove", "abort"),
]
SIDES = ("before", "after")
FAILING = {"open", "fallocate", "create_map", "reserve", "write", "sync", "rename"}
ERRORS = (errno.EIO, errno.ENOSPC)
ENDED, REFUSED, NOT_STARTED, EXITED = 0, 3, 4, 9

Count = Callable[[str, int], None]


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled failpoints."""
    return preload.compiled(tmp_path_factory.mktemp("failpoints"))


class StoreUnderFaults:
    """One store, which successive processes open, each with a failpoint."""

    def __init__(self, root: Path, backend: str, library: Path) -> None:
        if (reason := refusal(backend, str(root))) is not None:
            pytest.skip(reason)
        self.root = root / "store"
        self.backend = backend
        self._library = library
        self._acknowledged: list[writer.Line] = []
        self._state = 0
        self._next = 0

    def run(self, call: str, file: str, nth: int, does: str, times: int = 1) -> int:
        """Run one process; returns its exit code."""
        command = [sys.executable, writer.__file__, str(self.root), str(self._next), self.backend]
        environment = dict(os.environ)
        if file == SEGMENTS:
            environment |= preload.environment(
                self._library, self.root, call, file, nth, does, times
            )
        else:
            number = int(does) if does.isdecimal() else does
            point = {"call": call, "path": f"/{file}", "does": number, "nth": nth, "times": times}
            command.append(json.dumps(point))
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in (ENDED, REFUSED, NOT_STARTED, EXITED), done.stderr
        for line in done.stdout[: done.stdout.rfind("\n") + 1].splitlines():
            if line.startswith("state"):
                self._state = int(line.split()[1])
            else:
                self._acknowledged.append(
                    tuple(map(int, line.split()))  # type: ignore[arg-type]
                )
        return done.returncode

    def check(self) -> None:
        """Check that without a fault the store opens, serves all acknowledged messages, and is
        undamaged."""
        backend = writer.backend_of(self.backend)
        with MessageStore(
            writer.config_of(str(self.root)), backend=backend, disk_use=lambda _: 0.5
        ) as store:
            for queue_id, queue_offset, physical_offset, number in self._acknowledged[-500:]:
                found = store.get(writer.TOPIC, queue_id, queue_offset, 1)
                record = decode_record(b"".join(found.buffers))
                assert record.physical_offset == physical_offset
                assert record.body == writer.body_of(number)
            for queue_id in range(writer.QUEUES):
                end = store.max_offset(writer.TOPIC, queue_id)
                if end:
                    found = store.get(writer.TOPIC, queue_id, end - 1, 1)
                    body = decode_record(b"".join(found.buffers)).body
                    number = int(body.split(b",")[0])
                    assert body == writer.body_of(number)
                    self._next = max(self._next, number + 1)
        assert StoreExaminer(str(self.root)).verify().problems == []
        if self._state:
            state = StateFile(str(self.root / "config" / "state.json")).load(int)
            assert state is not None and state >= self._state


@pytest.mark.crash
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_process_killed_at_any_step_leaves_a_store_that_opens(
    tmp_path: Path, preloaded: Path, kill_rounds: int, backend: str, campaign: Count
) -> None:
    """1,000 rounds reach each failpoint three times."""
    runs = StoreUnderFaults(tmp_path, backend, preloaded)
    dice = random.Random(36)
    points = [*product(STEPS, SIDES)]
    dice.shuffle(points)
    reached = set()
    for number in range(max(4, kill_rounds // 9)):
        (call, file), side = points[number % len(points)]
        # The first pass uses the first call, which creates or recovers a store.
        nth = 1 if number < len(points) else dice.randrange(1, 12)
        if runs.run(call, file, nth, side) == EXITED:
            reached.add((call, file, side))
        runs.check()
        campaign(f"R2 failpoint, {backend}", 1)
    campaign(f"R2 different failpoints that ended a process, {backend}", len(reached))
    assert len(reached) > min(kill_rounds // 9, len(points)) // 2


@pytest.mark.crash
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_call_acknowledges_no_message_and_leaves_a_store_that_opens(
    tmp_path: Path, preloaded: Path, kill_rounds: int, backend: str, campaign: Count
) -> None:
    runs = StoreUnderFaults(tmp_path, backend, preloaded)
    dice = random.Random(7)
    steps = [step for step in STEPS if step[0] in FAILING]
    for number in range(max(4, kill_rounds // 9)):
        call, file = dice.choice(steps)
        does = str(dice.choice(ERRORS))
        if call == "write" and number % 3 == 0:
            does = "short"
        ended = runs.run(call, file, dice.randrange(1, 40), does, times=dice.choice((1, 1000)))
        assert ended != EXITED
        runs.check()
        campaign(f"R7 N-th call fails, {backend}", 1)
