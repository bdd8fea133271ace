"""Name servers and brokers, ours and the reference's, each as a process on 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from pathlib import Path

from . import build
from .slowness import limit_s
from .wire import GET_BROKER_CLUSTER_INFO, Wire

HOST = "127.0.0.1"
SERVER_PORTS = (12_000, 32_000)
PORTS_A_PROCESS = 1_000
CLUSTER = "InteropCluster"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
WATCHDOG_MILLIS = 50
HELD = "the event loop is held for"
MEBIBYTE = 1 << 20

# Without these the reference cannot unmap its buffers on Java 17.
JAVA_OPENS = [
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.nio", "java.util", "jdk.internal.ref", "sun.nio.ch")
    ),
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
]
# Tests start many of them on few cores: little memory, no long compilation, no verification of
# classes, and no TLS. With TLS each server makes a key and a certificate of its own, which takes
# three quarters of the processor time of its start.
SMALL_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Xms64m",
    "-XX:MaxDirectMemorySize=512m",
    "-Dtls.server.mode=disabled",
)
# For tests of TLS; the last value of a property counts.
TLS_JVM = (*SMALL_JVM, "-Dtls.server.mode=permissive")
LOGBACK = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %c{0} %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
"""
# mqadmin reads its settings again for each command. An appender would write what other threads log
# meanwhile into the command's output, whatever the level.
NO_LOG = '<configuration><root level="OFF"/></configuration>\n'


def java_command(
    home: Path,
    heap_mb: int,
    *properties: str,
    jvm: Sequence[str] = SMALL_JVM,
    source: str = "java",
) -> list[str]:
    """The command that starts every JVM here; `home` gets the logging settings that RocketMQ
    expects. The jars are those of build.classpath(source)."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name, settings in (("broker", LOGBACK), ("namesrv", LOGBACK), ("tools", NO_LOG)):
        (conf / f"logback_{name}.xml").write_text(settings)
    return [
        "java",
        *JAVA_OPENS,
        f"-Xmx{heap_mb}m",
        *jvm,
        f"-Drocketmq.home.dir={home}",
        f"-Duser.home={home}",
        *properties,
        "-cp",
        build.classpath(source),
    ]


def free_port() -> int:
    """A port whose neighbours -2 and +1 are free too: a Java broker uses all three.

    It is below the ephemeral ports, so that no outgoing connection takes it while a broker is down
    that will return to its port.
    """
    for port in _own_ports():
        with contextlib.ExitStack() as stack:
            try:
                for each in (port, port - 2, port + 1):
                    # At all addresses: machines of a pair listen at 127.0.0.2 and 127.0.0.3.
                    stack.enter_context(socket.socket()).bind(("", each))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")


@cache
def _own_ports() -> Iterator[int]:
    """Ports that only this process uses, because `make test` runs two at the same time.

    A socket without a file reserves a part of SERVER_PORTS; the kernel frees it with the process.
    """
    for first in range(*SERVER_PORTS, PORTS_A_PROCESS):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0congreve-test-ports-{first}")
        except OSError:
            reservation.close()
        else:
            return _walk(range(first + 2, first + PORTS_A_PROCESS - 1, 4), reservation)
    raise RuntimeError("all ports for tests are reserved by other processes")


def _walk(ports: range, reservation: socket.socket) -> Iterator[int]:
    with reservation:
        yield from cycle(ports)


def accepts(port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass
class Server:
    """A process that listens on a port."""

    name: str
    command: list[str]
    port: int
    folder: Path
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)  # added to that of this process

    @property
    def address(self) -> str:
        """The server's address."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The log file."""
        return self.folder / f"{self.name}-{self.starts}.log"

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start it without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self.process

    def start(self) -> None:
        """Start it and wait until it is ready."""
        process = self.spawn()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self.name} is not ready:\n{self.tail()}")
            time.sleep(0.02)

    def ready(self) -> bool:
        """Whether it accepts connections."""
        return accepts(self.port)

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]

    def stop(self) -> int:
        """Send SIGTERM and wait; returns the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """Send SIGKILL: only the page cache's content survives."""
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


@dataclass
class BrokerServer(Server):
    """A broker; it is ready when it listens and its name server knows it."""

    namesrv: str = ""
    broker_name: str = ""
    store: Path = field(default_factory=Path)
    config: Path = field(default_factory=Path)

    def _end(self, number: signal.Signals) -> int:
        code = super()._end(number)
        self.check_loop()
        return code

    def check_loop(self) -> None:
        """Raises AssertionError when the broker has logged that its event loop was blocked."""
        if self.starts:
            log = self.log.read_text(errors="replace")
            held = [line for line in log.splitlines() if HELD in line]
            assert not held, f"{self.log}: {held}"

    def ready(self) -> bool:
        """Whether it listens and is registered."""
        if not accepts(self.port):
            return False
        with Wire(self.namesrv) as wire:
            body = wire.call(GET_BROKER_CLUSTER_INFO, {}).body
        return f'"{self.address}"'.encode() in body


def namesrv(kind: str, folder: Path, *, jvm: Sequence[str] = SMALL_JVM) -> Server:
    """A name server of that kind ("congreve", "java" or "java5"), not started; `jvm` is for the
    last two."""
    port = free_port()
    name = f"{kind}-namesrv"
    if kind == "congreve":
        command = [sys.executable, "-m", "congreve", "namesrv", "--host", HOST]
        command += ["--port", str(port)]
    else:
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "namesrv.conf"
        config.write_text(f"listenPort={port}\nkvConfigPath={folder}/kvConfig.json\n")
        command = java_command(folder / "home", 128, jvm=jvm, source=kind)
        command += ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(config)]
    return Server(name, command, port, folder)


def broker(
    kind: str,
    folder: Path,
    namesrv_address: str,
    *,
    broker_name: str = "broker-a",
    store: Path | None = None,
    port: int | None = None,
    settings: dict[str, str] | None = None,
    jvm: Sequence[str] = SMALL_JVM,
    watchdog_millis: int | None = None,
) -> BrokerServer:
    """A broker of that kind ("congreve", "java" or "java5"), not started; `jvm` is for the last
    two.

    Ours may not block its event loop for `watchdog_millis`, by default WATCHDOG_MILLIS or more on
    a slow machine; 0 turns the check off.
    """
    if watchdog_millis is None:
        watchdog_millis = int(limit_s(WATCHDOG_MILLIS))
    port = port or free_port()
    store = store or folder / "store"
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"{kind}-broker.conf"
    values = {
        "brokerClusterName": CLUSTER,
        "brokerName": broker_name,
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "bindAddress": HOST,
        "listenPort": str(port),
        "namesrvAddr": namesrv_address,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": str(64 * MEBIBYTE),
        "flushDiskType": "ASYNC_FLUSH",
        "diskMaxUsedSpaceRatio": "95",
        # The reference refuses sends that waited 200 ms, which happens on a busy test machine.
        "waitTimeMillsInSendQueue": "10000",
        "eventLoopWatchdogMillis": str(watchdog_millis),
        **(settings or {}),
    }
    if kind != "congreve":
        del values["bindAddress"], values["eventLoopWatchdogMillis"]
    config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    if kind == "congreve":
        command = [sys.executable, "-m", "congreve", "broker"]
        command += ["-c", str(config), "-n", namesrv_address]
    else:
        ratios = (
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
        )
        command = java_command(folder / "home", 512, *ratios, jvm=jvm, source=kind)
        command += ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(config)]
    return BrokerServer(
        f"{kind}-broker",
        command,
        port,
        folder,
        namesrv=namesrv_address,
        broker_name=broker_name,
        store=store,
        config=config,
    )
