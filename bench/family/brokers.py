"""The brokers: Congreve, rocketmq-rust, and Apache RocketMQ 5.5 and 4.9.4."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from harness import servers
from sidebyside.brokers import (
    JVM,
    PRETOUCH,
    SEGMENT_SIZE,
    SOONEST,
    WITH_BYTECODE,
    Running,
    started,
)

KINDS = ("congreve", "rust", "java5", "java")
TITLES = {
    "congreve": "Congreve",
    "rust": "rocketmq-rust 1.0.0",
    "java5": "RocketMQ 5.5.0",
    "java": "RocketMQ 4.9.4",
}
RUST_VERSION = "1.0.0"
WAIT_IN_SEND_QUEUE_MS = 10_000
DISK_SHARE_MAX = 80  # it refuses 85
BUILD = Path(__file__).resolve().parents[2] / "build" / "family"


@cache
def rust_program(name: str) -> str:
    """A program of rocketmq-rust; Cargo builds it once, which takes some minutes."""
    program = BUILD / "rust" / "bin" / f"rocketmq-{name}-rust"
    if not program.is_file():
        command = ["cargo", "install", "--quiet", f"rocketmq-{name}", "--version", RUST_VERSION]
        targets = [f"--root={BUILD / 'rust'}", f"--target-dir={BUILD / 'rust-target'}"]
        subprocess.run([*command, "--locked", *targets], check=True)
    return str(program)


def _of_rust(server: servers.Server, name: str, config: Path) -> None:
    server.command[:] = [rust_program(name), "-c", str(config)]
    server.environment = {
        "ROCKETMQ_HOME": str(server.folder),
        "ROCKETMQ_SECURITY_PROFILE": "development-insecure-loopback",
        "RUST_LOG": "warn",
    }


def _rust_config(server: servers.BrokerServer, flush: str) -> str:
    """The settings of the others as rocketmq-rust writes them; all its listeners on loopback."""
    return f"""[broker]
listenPort = {server.port}
brokerIp1 = "{servers.HOST}"
namesrvAddr = "{server.namesrv}"
storePathRootDir = "{server.store}"
waitTimeMillsInSendQueue = {WAIT_IN_SEND_QUEUE_MS}

[broker.brokerServerConfig]
bindAddress = "{servers.HOST}"

[broker.brokerIdentity]
brokerName = "{server.broker_name}"
brokerClusterName = "{servers.CLUSTER}"
brokerId = 0

[store]
storePathRootDir = "{server.store}"
storePathCommitLog = "{server.store / "commitlog"}"
mappedFileSizeCommitLog = {SEGMENT_SIZE}
flushDiskType = "{flush}"
diskMaxUsedSpaceRatio = {DISK_SHARE_MAX}
commitLogMicroBatchEnabled = false
haListenAddress = "{servers.HOST}"
haListenPort = {servers.free_port()}
"""


def _namesrv(kind: str, folder: Path) -> servers.Server:
    server = servers.namesrv("java" if kind == "rust" else kind, folder)
    if kind == "rust":
        config = folder / "namesrv.toml"
        config.write_text(f'rocketmqHome = "{folder}"\nkvConfigPath = "{folder}/kvConfig.json"\n')
        _of_rust(server, "namesrv", config)
        server.command += ["--listenPort", str(server.port), "--bindAddress", servers.HOST]
    return server


def _broker(kind: str, folder: Path, namesrv: str, flush: str) -> servers.BrokerServer:
    settings = {"mappedFileSizeCommitLog": str(SEGMENT_SIZE), "flushDiskType": flush}
    if kind == "congreve" and flush == "SYNC_FLUSH":
        settings |= SOONEST
    server = servers.broker(
        "java" if kind == "rust" else kind,
        *(folder, namesrv),
        settings=settings,
        jvm=(*JVM, *PRETOUCH),
        watchdog_millis=0,
    )
    if kind == "congreve":
        server.environment = WITH_BYTECODE
    elif kind == "rust":
        config = folder / "broker.toml"
        config.write_text(_rust_config(server, flush))
        _of_rust(server, "broker", config)
    return server


@contextmanager
def running(kind: str, folder: Path, flush: str) -> Iterator[Running]:
    """A broker with an empty store in the folder, which is removed afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    namesrv = _namesrv(kind, folder / "namesrv")
    broker = _broker(kind, folder / "broker", namesrv.address, flush)
    with started(kind, folder, namesrv, broker) as found:
        yield found


def missing() -> dict[str, str]:
    """By kind: the program without which it cannot run here."""
    needs = {"rust": "cargo", "java5": "mvn", "java": "mvn"}
    return {kind: tool for kind, tool in needs.items() if shutil.which(tool) is None}
