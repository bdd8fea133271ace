"""`congreve broker` with a failpoint in its file layer: every file but the log's segments.

Arguments: a Failpoint as JSON, a broker.conf, the name servers.
"""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec

from congreve.broker.broker import Broker
from congreve.broker.broker_conf import load_config
from congreve.console.daemon.serve import serve
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK

#: The exit code of a process that a failpoint ended.
ENDED_THERE = 9


def command(failpoint: Failpoint, config: Path, namesrv_address: str) -> list[str]:
    """The command that starts such a broker."""
    text = msgspec.json.encode(failpoint).decode()
    return [sys.executable, __file__, text, str(config), namesrv_address]


def faulty(failpoint: Failpoint) -> FaultyFileSystem:
    """The real file system with this failpoint; it ends the process with ENDED_THERE."""
    return FaultyFileSystem(DISK, failpoint, end=partial(os._exit, ENDED_THERE))


def main(failpoint: str, config_file: str, namesrv_address: str) -> None:
    """Run the broker until SIGTERM."""
    config, *_ = load_config(Path(config_file), {"namesrvAddr": namesrv_address})
    files = faulty(msgspec.json.decode(failpoint, type=Failpoint))

    async def enter(stack: AsyncExitStack) -> str:
        broker = Broker(config, config_path=Path(config_file), files=files)
        await stack.enter_async_context(broker)
        return f"broker {broker.address}"

    serve(enter)


if __name__ == "__main__":
    main(*sys.argv[1:])
