"""The loop of the HA port beside threads that append."""

import subprocess
import sys
from pathlib import Path

DEADLINE_S = 120
PROGRAM = """
import socket, sys, threading, time

from congreve.broker.replication.slave_connection import SlaveConnection
from congreve.broker.replication.slave_loop import SlaveLoop
from congreve.engine.config import StoreConfig
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.store import MessageStore
from congreve.remoting.loop.event_fd import EventFd

with MessageStore(StoreConfig(root_dir=sys.argv[1])) as store:
    confirm = ConfirmOffset(store.backend, waits_for_disk=False)
    wake = EventFd()
    loop = SlaveLoop(store.log, confirm, wake=wake.descriptor, sync_flush=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    slave = SlaveConnection(ours, store.log, 1 << 20, time.monotonic())
    loop.add(slave)
    held = threading.Event()

    def append() -> None:
        with store.log.lock:
            held.set()
            time.sleep(0.2)  # needs the GIL to go on, as a segment that begins does

    appends = threading.Thread(target=append)
    appends.start()
    held.wait()
    loop.remove(slave)
    appends.join()
    ours.close()
    theirs.close()
    wake.close()
print("removed")
"""


def test_a_last_slave_leaves_while_a_thread_appends(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.stdout == "removed\n", ended.stderr
