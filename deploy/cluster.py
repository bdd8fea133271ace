"""Two machines of brokers on loopback addresses, and what the loss of one does to a producer.

Each machine has a name server and a member of two groups; etcd is the witness on a third one.
`make cluster` runs it; with --once it ends after the demonstration. It needs etcd.
"""

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from congreve.base.errors import CongreveError
from congreve.client import Message, Producer
from congreve.client.admin import AdminClient

MACHINES = ("127.0.0.11", "127.0.0.12")
WITNESS = "127.0.0.13"
GROUPS = {"group-a": 10911, "group-b": 11911}
LEASE_S = 3
START_S, PART_S = 60.0, 10.0


class Cluster:
    """The processes, by machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name_servers = ";".join(f"{machine}:9876" for machine in MACHINES)
        self.processes: dict[str, list[subprocess.Popen[bytes]]] = {}

    def start(self, machine: str, name: str, command: list[str]) -> None:
        """Start a program of a machine."""
        folder = self.folder / machine / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        self.processes.setdefault(machine, []).append(process)

    def start_witness(self) -> None:
        """etcd of one member."""
        client, peer = f"http://{WITNESS}:2379", f"http://{WITNESS}:2380"
        urls = ["--listen-client-urls", client, "--advertise-client-urls", client]
        urls += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        cluster = ["--name", "witness", "--initial-cluster", f"witness={peer}"]
        self.start(WITNESS, "etcd", ["etcd", "--data-dir", "data", *urls, *cluster])

    def start_machine(self, machine: str) -> None:
        """A name server and a member of each group."""
        congreve = [sys.executable, "-m", "congreve"]
        self.start(machine, "namesrv", [*congreve, "namesrv", "--host", machine])
        for group, port in GROUPS.items():
            settings = {
                "brokerName": group,
                "brokerId": str(MACHINES.index(machine) + 1),
                "brokerIP1": machine,
                "brokerIP2": machine,
                "bindAddress": machine,
                "listenPort": str(port),
                "storePathRootDir": "store",
                "haMode": "etcd",
                "etcdEndpoints": f"http://{WITNESS}:2379",
                "haLeaseSeconds": str(LEASE_S),
            }
            options = [f"--set={key}={value}" for key, value in settings.items()]
            self.start(machine, group, [*congreve, "broker", "-n", self.name_servers, *options])

    def end(self, machine: str, number: signal.Signals) -> None:
        """Send all processes of a machine a signal, and wait for their end."""
        processes = self.processes.pop(machine, [])
        for process in processes:
            process.send_signal(number)
        for process in processes:
            process.wait()


async def send_for(producer: Producer, seconds: float) -> tuple[int, float]:
    """Send one message after the other; the number of acknowledged ones, and the longest pause."""
    acknowledged, pause = 0, 0.0
    last = end = time.monotonic()
    end += seconds
    while (now := time.monotonic()) < end:
        try:
            await producer.send(Message(topic="demo", body=b"hello"), timeout_s=1)
        except CongreveError:
            await asyncio.sleep(0.05)
        else:
            acknowledged += 1
            pause = max(pause, time.monotonic() - last)
            last = time.monotonic()
    return acknowledged, max(pause, now - last)


async def masters(cluster: Cluster) -> str:
    """Which machine has the master of each group, as the name servers say."""
    async with AdminClient(cluster.name_servers) as admin:
        table = (await admin.cluster_info()).broker_addr_table
    brokers = {group: table[group].broker_addrs for group in GROUPS if group in table}
    return ", ".join(f"{group} at {each.get(0, 'no machine')}" for group, each in brokers.items())


async def demonstrate(cluster: Cluster) -> None:
    """Send, kill a machine, go on, and bring it back."""

    async def show(what: str) -> None:
        count, pause = await send_for(producer, PART_S)
        print(
            f"{what}: {count} messages acknowledged in {PART_S:.0f} s, longest pause {pause:.1f} s;"
            f" masters: {await masters(cluster)}"
        )

    async with Producer(cluster.name_servers, group="demo") as producer:
        deadline = time.monotonic() + START_S
        while (await send_for(producer, 1.0))[0] == 0:
            if time.monotonic() > deadline:
                raise SystemExit(f"no master after {START_S:.0f} s: see the logs")
        await show("with both machines")
        cluster.end(MACHINES[0], signal.SIGKILL)
        await show(f"after kill -9 of everything on {MACHINES[0]}")
        cluster.start_machine(MACHINES[0])
        await show(f"after {MACHINES[0]} was started again")


def main() -> None:
    """Run the cluster in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--once", action="store_true", help="end after the demonstration")
    once = parser.parse_args().once
    if shutil.which("etcd") is None:
        raise SystemExit("etcd is not installed: apt-get install etcd-server")
    with tempfile.TemporaryDirectory(prefix="congreve-cluster-") as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.start_witness()
            for machine in MACHINES:
                cluster.start_machine(machine)
            asyncio.run(demonstrate(cluster))
            if not once:
                print(f"name servers {cluster.name_servers}, logs in {folder}; Ctrl-C ends it")
                signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            for machine in list(cluster.processes):
                cluster.end(machine, signal.SIGTERM)


if __name__ == "__main__":
    main()
