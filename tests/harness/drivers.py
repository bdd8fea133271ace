"""The official clients, driven by JSON lines."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import build
from .servers import java_command

BALANCED_S = 120

REBALANCE_MS = 2_000
"""The time after which a Java member takes its share of the queues again, even after a failed query
of an offset; the client's default is 20 s."""

Json = dict[str, Any]


class DriverError(Exception):
    """The client reported a failure; the text is its exception's."""


class Driver:
    """A process that answers each JSON line with a JSON line."""

    def __init__(
        self, command: list[str], folder: Path, name: str, environment: dict[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{name}.log"
        self._turn = threading.Lock()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                # The folder of the Go client's offsets in broadcasting mode.
                env={
                    **os.environ,
                    "rocketmq.client.localOffsetStoreDir": str(folder),
                    **(environment or {}),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def call(self, do: str, **request: object) -> Json:
        """Send one command and return its answer. Raises DriverError when the client failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise DriverError(f"the driver died: {self.log.read_text(errors='replace')[-4000:]}")
        answer: Json = json.loads(line)
        if "error" in answer:
            raise DriverError(f"{answer['error']}\n{answer.get('trace', '')}")
        return answer

    def mqadmin(self, *args: str, lines: int = 0) -> str:
        """The output of mqadmin (the Java driver only); it is interrupted after so many `lines`."""
        out: str = self.call("mqadmin", args=list(args), lines=lines)["out"]
        return out

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close its input, then end the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def java_driver(folder: Path, serialize_type: str, *properties: str) -> Driver:
    """The Java client 4.9.4; serialize_type is JSON or ROCKETMQ (binary headers)."""
    command = java_command(
        folder / "home",
        768,
        f"-Drocketmq.serialize.type={serialize_type}",
        "-Drocketmq.client.logUseSlf4j=true",
        f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}",
        *properties,
    )
    name = f"java-driver-{serialize_type.lower()}"
    return Driver([*command, "congreve.interop.Driver"], folder, name)


def java5_driver(folder: Path, *properties: str) -> Driver:
    """The Java client and mqadmin of RocketMQ 5; java5/src has its commands."""
    command = java_command(
        folder / "home",
        512,
        "-Drocketmq.client.logUseSlf4j=true",
        f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}",
        *properties,
        source="java5",
    )
    return Driver([*command, "congreve.interop5.Driver"], folder, "java5-driver")


def grpc_clients(folder: Path, language: str, authority: Path, *args: str) -> Driver:
    """The official gRPC clients of a language, with TLS; java5/GrpcClients.java has their commands.

    `args` are the endpoints, an access key and its secret. Clients for Node.js and Python want a
    certificate of the authority.
    """
    home = folder / "home"
    home.mkdir()
    command = {
        "java": _grpc_java,
        "go": _grpc_go,
        "node": _grpc_node,
        "python": _grpc_python,
        "rust": _grpc_rust,
    }
    environment = {
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority),
        "HOME": str(home),
        "rocketmq.client.logRoot": str(home),
    }
    return Driver([*command[language](home), *args], folder, f"grpc-{language}", environment)


def grpc_lite_clients(folder: Path, endpoints: str) -> Driver:
    """The official gRPC client for Java with lite topics; java5/LiteClients.java has its
    commands."""
    command = _grpc_java(folder / "home", "LiteClients")
    return Driver([*command, endpoints], folder, "grpc-lite-clients")


def _grpc_java(home: Path, program: str = "GrpcClients") -> list[str]:
    *command, classpath = java_command(home, 256, source="java5")
    # First: another jar has the same classes without the client's own gRPC.
    (jar,) = (build.BUILD / "java5" / "lib").glob("rocketmq-client-java-*.jar")
    return [*command, f"{jar}:{classpath}", str(build.HERE / "java5" / f"{program}.java")]


def _grpc_go(home: Path) -> list[str]:
    return [str(build.go_program(build.HERE / "go5"))]


def _grpc_node(home: Path) -> list[str]:
    return ["node", str(build.node_modules() / "clients.js")]


def _grpc_rust(home: Path) -> list[str]:
    return [str(build.rust_program())]


def _grpc_python(home: Path) -> list[str]:
    return [sys.executable, str(build.HERE / "python" / "clients.py")]


def auto_switch_store(folder: Path) -> Driver:
    """A store of RocketMQ 5 with AutoSwitch replication; java/AutoSwitch.java has its commands."""
    home = folder / "home"
    no_log = f"-Dlogback.configurationFile={home / 'conf' / 'logback_tools.xml'}"
    *command, classpath = java_command(home, 256, no_log)
    command.append(f"{build.BUILD / 'java' / 'lib5'}/*:{classpath}")
    return Driver([*command, str(build.HERE / "java" / "AutoSwitch.java")], folder, "auto-switch")


def body(message: Json) -> bytes:
    """The body of a message that a driver reported."""
    return base64.b64decode(message["body"])


def message(topic: str, text: bytes, **fields: object) -> Json:
    """A message for a driver's send: tags, keys, flag, properties, delayLevel as keywords."""
    return {"topic": topic, "body": base64.b64encode(text).decode(), **fields}


def balanced(client: Driver, topic: str, consumers: str, queues: int = 4) -> list[list[int]]:
    """Wait until the instances of a consumerStart share the queues evenly; which holds which."""
    deadline = time.monotonic() + BALANCED_S
    while True:
        held = client.call("consumerAssignment", id=consumers, topic=topic)["instances"]
        share = queues // len(held)
        if all(len(one) == share for one in held) and len({q for one in held for q in one}) == (
            queues
        ):
            return [sorted(one) for one in held]
        assert time.monotonic() < deadline, f"not balanced: {held}"
        time.sleep(0.05)
