"""Pulls that wait for an archive."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.stores.small_store import small_store

from congreve.broker.errors import RefusedError
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.pull.archived_pulls import ArchivedPulls
from congreve.broker.requests.wait_limit import WaitLimit
from congreve.engine.store import MessageStore
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageRequestHeader

from ..tool import local_config


class SlowArchive:
    """An archive without messages, whose reads end when the test says so."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def read(self, *_: object) -> None:
        self.go_on.wait()

    def first_offset(self, *_: object) -> None:
        return None


def pull(offset: int, size: int) -> tuple[RemotingCommand, PullMessageRequestHeader]:
    header = PullMessageRequestHeader(
        consumer_group="g" * size,
        topic="T",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    return RemotingCommand(code=11, ext_fields=header.fields(), body=bytes(1 << 20)), header


async def test_pulls_that_wait_for_an_archive_are_weighed(tmp_path: Path) -> None:
    archive: Any = SlowArchive()
    with MessageStore(small_store(tmp_path)) as store:
        pulls = ArchivedPulls(local_config(), store, lambda _: archive)
        pulls.limit = WaitLimit(most_bytes=5_000)
        log: Any = SimpleNamespace(min_offset=9, max_offset=9)

        async def ask(offset: int, size: int) -> object:
            request, header = pull(offset, size)
            served: Any = pulls.serve(request, header, MessageFilter(), log, lambda found: found)
            return await served

        waiting = [asyncio.create_task(ask(offset, 1_000)) for offset in (0, 0, 1)]
        await asyncio.sleep(0)
        assert pulls.limit.count == 3
        assert 3_000 < pulls.limit.size < 5_000, "without the bodies"
        with pytest.raises(RefusedError, match="try again"):
            await ask(0, 2_000)
        archive.go_on.set()
        assert await asyncio.gather(*waiting) == [log] * 3
        assert (pulls.limit.count, pulls.limit.size) == (0, 0)
        pulls.stop()
