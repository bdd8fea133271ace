"""Name servers and brokers, ours and the reference's, each as a process on 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import build
from .wire import GET_BROKER_CLUSTER_INFO, Wire

HOST = "127.0.0.1"
SERVER_PORTS = (12_000, 32_000)
CLUSTER = "InteropCluster"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
MEBIBYTE = 1 << 20

# Without these the reference cannot clean its mapped buffers on Java 17.
JAVA_OPENS = [
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.nio", "java.util", "jdk.internal.ref", "sun.nio.ch")
    ),
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
]
# Tests start many of them on few cores: little memory, and no long compilation.
SMALL_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xms64m",
    "-XX:MaxDirectMemorySize=512m",
)
LOGBACK = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %c{0} %m%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="console"/></root>
</configuration>
"""


def java_command(
    home: Path, heap_mb: int, *properties: str, jvm: Sequence[str] = SMALL_JVM
) -> list[str]:
    """How every JVM here is started; `home` gets the logging settings that RocketMQ wants."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    # The tools' log would stand between the lines that they print.
    for name, level in (("broker", "WARN"), ("namesrv", "WARN"), ("tools", "OFF")):
        (conf / f"logback_{name}.xml").write_text(LOGBACK.replace("{level}", level))
    return [
        "java",
        *JAVA_OPENS,
        f"-Xmx{heap_mb}m",
        *jvm,
        f"-Drocketmq.home.dir={home}",
        f"-Duser.home={home}",
        *properties,
        "-cp",
        build.classpath(),
    ]


def free_port() -> int:
    """A port whose neighbours -2 and +1 are free too: a Java broker takes all three.

    Below those that the kernel gives to outgoing connections, so that none of them is taken while
    a broker that comes back on its port is down.
    """
    while True:
        port = random.randrange(*SERVER_PORTS)
        with contextlib.ExitStack() as stack:
            try:
                for each in (port, port - 2, port + 1):
                    stack.enter_context(socket.socket()).bind((HOST, each))
            except OSError:
                continue
            return port


def accepts(port: int) -> bool:
    """True when something listens."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass
class Server:
    """A process that serves a port."""

    name: str
    command: list[str]
    port: int
    folder: Path
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}-{self.starts}.log"

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start it, without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
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
        return accepts(self.port)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def stop(self) -> int:
        """SIGTERM and wait; the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """SIGKILL: what a power cut leaves in the page cache is kept, nothing else."""
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
    """A broker; ready when it listens and its name server knows it."""

    namesrv: str = ""
    broker_name: str = ""
    store: Path = field(default_factory=Path)
    config: Path = field(default_factory=Path)

    def ready(self) -> bool:
        if not accepts(self.port):
            return False
        with Wire(self.namesrv) as wire:
            body = wire.call(GET_BROKER_CLUSTER_INFO, {}).body
        return f'"{self.address}"'.encode() in body


def namesrv(kind: str, folder: Path) -> Server:
    """A name server of that kind ("congreve" or "java"), not started."""
    port = free_port()
    name = f"{kind}-namesrv"
    if kind == "congreve":
        command = [sys.executable, "-m", "congreve", "namesrv", "--host", HOST]
        command += ["--port", str(port)]
    else:
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "namesrv.conf"
        config.write_text(f"listenPort={port}\nkvConfigPath={folder}/kvConfig.json\n")
        command = java_command(folder / "home", 128)
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
) -> BrokerServer:
    """A broker of that kind ("congreve" or "java"), not started; `jvm` is for the latter."""
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
        # The reference refuses sends that waited 200 ms, which a busy test machine makes them do.
        "waitTimeMillsInSendQueue": "10000",
        **(settings or {}),
    }
    if kind == "java":
        del values["bindAddress"]
    config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    if kind == "congreve":
        command = [sys.executable, "-m", "congreve", "broker"]
        command += ["-c", str(config), "-n", namesrv_address]
    else:
        ratios = (
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
        )
        command = java_command(folder / "home", 512, *ratios, jvm=jvm)
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
