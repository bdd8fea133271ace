"""Runs `congreve` in forks of a process that has imported its modules: a start takes little CPU.

A test of the start itself runs `python -m congreve` in a process of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import NoReturn

CLUSTER = (
    *(
        "brokers",
        "cat",
        "cluster",
        "dlq",
        "find",
        "group",
        "send",
        "timers",
        "topic",
        "undeliverable",
        "why",
    ),
)
MODULES = (
    *("accounts", "doctor", "quota", "store", "top"),
    *(f"cluster.{name}" for name in CLUSTER),
    "tune.command",
)
REQUEST_MAX = 1 << 20
TIMEOUT_S = 90
KILLED_AT = "KILLED_AT_REQUEST"
"""In the environment of a command: it is killed as it sends its request of this number, from 1."""


class CommandForks:
    """One such process; it ends with this one."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a fork has no other threads
            )

    def run(
        self, arguments: tuple[str, ...], stdin: str, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end. Raises TimeoutError after TIMEOUT_S."""
        with (
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as errors,
        ):
            given.write(stdin)
            given.seek(0)
            request = json.dumps([arguments, dict(environment)]).encode()
            files = [given.fileno(), out.fileno(), errors.fileno()]
            try:
                socket.send_fds(self._connection, [request], files)
                code = int(self._connection.recv(100))
            except TimeoutError:
                os.killpg(self._process.pid, signal.SIGKILL)
                raise
            out.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), errors.read())


@cache
def command_forks() -> CommandForks:
    """The process for all tests."""
    return CommandForks()


def serve(connection: socket.socket) -> None:
    """Run one command after the other."""
    for name in MODULES:
        import_module(f"congreve.console.{name}")
    while True:
        request, files, _, _ = socket.recv_fds(connection, REQUEST_MAX, 3)
        if not request:
            return
        child = os.fork()
        if child == 0:
            connection.close()
            become(*json.loads(request), files)
        for file in files:
            os.close(file)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.send(str(code).encode())


def kill_at(number: int) -> None:
    """Kill this process as it sends the request of this number."""
    from congreve.remoting.messages.command import RemotingCommand
    from congreve.remoting.transport.connection import Connection

    call, numbers = Connection.call, itertools.count(1)

    def counted(
        connection: Connection, command: RemotingCommand, deadline: float
    ) -> asyncio.Future[RemotingCommand]:
        if next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(connection, command, deadline)

    setattr(Connection, "call", counted)  # noqa: B010


def become(arguments: list[str], environment: dict[str, str], files: list[int]) -> NoReturn:
    """Run the command in this process, with these files as its standard streams."""
    from congreve.console.main import main

    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    if number := environment.get(KILLED_AT):
        kill_at(int(number))
    sys.argv[1:] = arguments
    main()
    sys.exit()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
