"""What is compared: our broker, RocketMQ 5.5's local proxy, and a server that only answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness import servers
from harness.servers import HOST, JAVA_OPENS, Server, free_port
from harness.wire import Wire
from sidebyside.brokers import create_topic

from congreve.broker.grpc.protos import Protos

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "grpcdoor"
TOPIC = "GrpcDoor"
QUEUES = 8
PROXY_HEAP_MB = 1024
_CREATE_GROUP, _MAX_OFFSET = 200, 30


class Target(NamedTuple):
    """A server under load; `remoting` is None for one that has no broker."""

    name: str
    pid: int
    port: int
    remoting: str | None

    def stored(self) -> int:
        """Messages of the topic."""
        if self.remoting is None:
            return 0
        with Wire(self.remoting) as wire:
            return sum(
                int(wire.call(_MAX_OFFSET, {"topic": TOPIC, "queueId": str(each)}).fields["offset"])
                for each in range(QUEUES)
            )

    def create_topic(self, name: str) -> None:
        """Create a topic."""
        if self.remoting is None:
            return
        with Wire(self.remoting) as wire:
            create_topic(wire, name, QUEUES)

    def create_group(self, name: str) -> None:
        """Create a group."""
        assert self.remoting is not None
        with Wire(self.remoting) as wire:
            wire.call(_CREATE_GROUP, {}, json.dumps({"groupName": name}).encode())


@cache
def proxy_classpath() -> str:
    """The jars of the proxy; Maven fetches them once."""
    target = BUILD / "lib"
    if not target.is_dir():
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        subprocess.run(command, check=True)
    return f"{target}/*"


@contextmanager
def congreve(folder: Path, namesrv: str) -> Iterator[Target]:
    """Our broker."""
    port = free_port()
    broker = servers.broker(
        "congreve", folder, namesrv, settings={"grpcPort": str(port)}, watchdog_millis=0
    )
    with _running(broker):
        assert broker.process is not None
        yield Target("congreve", broker.process.pid, port, broker.address)


@contextmanager
def proxy(folder: Path, namesrv: str) -> Iterator[Target]:
    """RocketMQ's proxy and broker in one process."""
    broker = servers.broker("java5", folder, namesrv, broker_name="broker-j")
    port = free_port()
    settings = folder / "proxy.json"
    settings.write_text(
        json.dumps(
            {
                "rocketMQClusterName": servers.CLUSTER,
                "proxyMode": "LOCAL",
                "grpcServerPort": port,
                "remotingListenPort": free_port(),
            }
        )
    )
    home = folder / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    command = ["java", *JAVA_OPENS, f"-Xmx{PROXY_HEAP_MB}m"]
    command += [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", "-cp", proxy_classpath()]
    command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local"]
    command += ["-bc", str(broker.config), "-pc", str(settings), "-n", namesrv]
    server = Server("proxy", command, port, folder)
    with _running(server):
        assert server.process is not None
        yield Target("RocketMQ 5.5", server.process.pid, port, broker.address)


@contextmanager
def nothing(folder: Path) -> Iterator[Target]:
    """The server in C that only answers, with what a broker answers to a send."""
    folder.mkdir(parents=True, exist_ok=True)
    program, answer, port = folder / "nothing", folder / "answer", free_port()
    protos = Protos()
    response = protos.SendMessageResponse(status=protos.Status(code=20000, message="OK"))
    entry = response.entries.add(message_id="01" * 17, transaction_id="01" * 17, offset=12345)
    entry.status.CopyFrom(response.status)
    answer.write_bytes(response.SerializeToString())
    compiled = ["gcc", "-O2", "-o", str(program), str(HERE / "nothing.c"), "-lnghttp2"]
    subprocess.run(compiled, check=True)
    server = Server("nothing", [str(program), str(port), str(answer)], port, folder)
    with _running(server):
        assert server.process is not None
        yield Target("nothing", server.process.pid, port, None)


@contextmanager
def _running(server: Server) -> Iterator[None]:
    server.start()
    try:
        yield
    finally:
        server.kill()


def address(target: Target) -> str:
    """Where its gRPC is."""
    return f"{HOST}:{target.port}"
