"""Starts that must work, and starts that must fail with one clear line and leave no file."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.servers import free_port

from congreve.remoting.messages.bodies import ClusterInfo
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.local_address import local_address
from tests.console.conftest import Daemon, congreve

BROKER = (
    "broker",
    "-o",
    "listenPort=0",
    "-o",
    "brokerIP1=127.0.0.1",
    "-o",
    "bindAddress=127.0.0.1",
)


def refused(*arguments: str) -> str:
    """The one line that a failed start leaves."""
    run = congreve(*arguments)
    assert run.returncode not in (0, None)
    lines = [line for line in run.stderr.splitlines() if "WARNING" not in line]
    assert len(lines) == 1, run.stderr
    return lines[0]


def at(folder: Path) -> tuple[str, str]:
    return "-o", f"storePathRootDir={folder}"


def test_systemd_is_notified_that_a_daemon_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        service = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        daemon = Daemon("namesrv", "--port", "0", **service)
        assert daemon.ready.startswith("ready: name server")
        assert [systemd.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        assert daemon.stop() == 0
        while (last := systemd.recv(100)) == b"WATCHDOG=1":
            pass
        assert last == b"STOPPING=1"


def test_the_watchdog_of_another_process_gets_no_notification(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        service = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        daemon = Daemon("namesrv", "--port", "0", **service, WATCHDOG_PID="1")
        assert systemd.recv(100) == b"READY=1"
        assert daemon.stop() == 0
        assert systemd.recv(100) == b"STOPPING=1"


def test_a_daemon_without_standard_output_serves(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        command = f"exec {sys.executable} -m congreve namesrv --port 0 <&- >&-"
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with subprocess.Popen(["sh", "-c", command], env=environment) as daemon:
            assert systemd.recv(100) == b"READY=1"
            daemon.terminate()
            assert daemon.wait(20) == 0


SERVED = """
import gc, os, signal
from congreve.console.daemon.serve import serve

async def enter(stack):
    loaded = [[] for _ in range(100_000)]
    stack.callback(lambda: print(len(loaded), len(gc.get_objects())))
    os.kill(os.getpid(), signal.SIGTERM)
    return "x"

serve(enter)
"""


def test_the_garbage_collector_skips_objects_that_a_daemon_has_loaded() -> None:
    """Otherwise it would visit each object of large tables while requests wait."""
    run = subprocess.run(
        [sys.executable, "-c", SERVED], capture_output=True, text=True, check=True, timeout=60
    )
    loaded, looked_at = map(int, run.stdout.splitlines()[-1].split())
    assert loaded == 100_000
    assert looked_at < 10_000


def test_a_daemon_may_open_as_many_files_as_the_system_allows(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 64  # other tests may have left some open
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(few, hard - 1), hard))
    try:
        daemon = Daemon(*BROKER, *at(tmp_path / "s"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    assert daemon.stop() == 0
    assert limits == (hard, hard)


def test_a_store_is_examined_offline_and_damage_is_found(tmp_path: Path) -> None:
    daemon = Daemon("run", "--data", str(tmp_path), "--port", "0", "--namesrv-port", "0")
    namesrv = daemon.ready.split("name server ")[1].split(",")[0]
    sent = congreve("send", "-t", "T", "-m", "a body to be damaged", namesrv=namesrv)
    assert sent.returncode == 0, sent.stderr
    assert daemon.stop() == 0
    store = str(tmp_path / "store")
    assert "stopped cleanly" in congreve("store", "info", store).stdout
    assert "1 records" in congreve("store", "verify", store).stdout
    segment = next((tmp_path / "store" / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(file.read(500).index(b"damaged"))
        file.write(b"D")
    damaged = congreve("store", "verify", store)
    assert damaged.returncode == 1
    assert "damaged:" in damaged.stdout


OUTSIDE = "127.0.0.2"
"""Another address of this machine: another network."""


def test_both_servers_of_one_process_listen_in_two_networks(tmp_path: Path) -> None:
    outside, far = (f"{OUTSIDE}:{free_port()}" for _ in range(2))
    daemon = Daemon(
        *("run", "--data", str(tmp_path), "--port", "0", "--namesrv-port", "0"),
        *("--listener", f"outside={OUTSIDE}:0", "--listener", f"far={OUTSIDE}:0"),
        *("--advertise", "far=broker.example.com:31921", "-o", "brokerName=a-node"),
        *("--namesrv-listener", f"outside={outside}", "--namesrv-listener", f"far={far}"),
    )

    async def announced(namesrv: str) -> str:
        client = RemotingClient(timeout_s=60)
        command = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await client.invoke(namesrv, command)
        await client.close()
        return ClusterInfo.decode(answer.body).broker_addr_table["a-node"].broker_addrs[0]

    assert asyncio.run(announced(outside)).startswith(f"{OUTSIDE}:")
    assert asyncio.run(announced(far)) == "broker.example.com:31921"
    assert daemon.stop() == 0


def test_unknown_keys_are_reported_and_do_not_prevent_a_start(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(
        f"# RocketMQ's\nlistenPort=0\nbrokerIP1=127.0.0.1\nstorePathRootDir={tmp_path / 's'}\n"
        "noSuchKey=1\nflushDiskTipe=SYNC_FLUSH\nuseEpollNativeSelector=true\nbrokerIP2=192.0.2.7\n"
    )
    daemon = Daemon("broker", "-c", str(config))
    assert daemon.ready.startswith("ready: broker")
    daemon.process.terminate()
    _, errors = daemon.process.communicate(timeout=90)
    assert f"{config}:5: noSuchKey is not a setting\n" in errors
    assert f"{config}:6: flushDiskTipe is not a setting: did you mean flushDiskType?" in errors
    assert f"{config}:7: useEpollNativeSelector, a key of RocketMQ, has no effect here" in errors
    assert "namesrvAddr: it is not set" in errors
    assert "brokerIP2: no interface of this machine has 192.0.2.7" in errors
    assert "brokerIP1: " not in errors


def test_the_error_for_an_invalid_value_names_its_line(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=b\nlistenPort=soon\n")
    line = refused("broker", "-c", str(config))
    assert f"{config}:2" in line and "listenPort" in line and "soon" in line


def test_the_error_for_an_unreadable_config_names_it(tmp_path: Path) -> None:
    assert "missing.conf" in refused("broker", "-c", str(tmp_path / "missing.conf"))


def test_a_start_on_a_busy_port_leaves_no_file(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        data = tmp_path / "data"
        line = refused("run", "--data", str(data), "--port", str(port), "--namesrv-port", "0")
    assert str(port) in line
    assert not data.exists()


def test_a_start_on_an_unavailable_address_leaves_no_file(tmp_path: Path) -> None:
    line = refused(*BROKER, *at(tmp_path / "d" / "s"), "-o", "brokerIP1=no such name")
    assert "brokerIP1='no such name'" in line
    assert not any(tmp_path.iterdir())


def test_a_broker_that_listens_everywhere_registers_a_reachable_address(tmp_path: Path) -> None:
    everywhere = ("--host", "0.0.0.0", "--port", "0", "--namesrv-port", "0")
    daemon = Daemon("run", "--data", str(tmp_path), *everywhere, NOTIFY_SOCKET="/nobody/here")
    assert daemon.ready.startswith(f"ready: broker {local_address()}:")
    daemon.process.terminate()
    _, errors = daemon.process.communicate(timeout=90)
    assert daemon.process.returncode == 0
    assert "NOTIFY_SOCKET=/nobody/here" in errors


@pytest.mark.parametrize(
    ("command", "option"), [("run", "--namesrv-port"), ("run", "--port"), ("namesrv", "--port")]
)
def test_a_port_out_of_range_is_refused(tmp_path: Path, command: str, option: str) -> None:
    run = congreve(command, option, "99999", "--host", "127.0.0.1", "--data", str(tmp_path / "d"))
    assert run.returncode == 2
    assert option in run.stderr and "99999" in run.stderr
    assert not (tmp_path / "d").exists()


def test_the_error_of_a_second_broker_on_a_store_names_the_first(tmp_path: Path) -> None:
    daemon = Daemon(*BROKER, *at(tmp_path / "s"))
    try:
        line = refused(*BROKER, *at(tmp_path / "s"))
        assert str(daemon.process.pid) in line
    finally:
        assert daemon.stop() == 0


def test_the_error_for_another_segment_size_gives_both_sizes(tmp_path: Path) -> None:
    daemon = Daemon(*BROKER, *at(tmp_path / "s"), "-o", "mappedFileSizeCommitLog=1048576")
    assert daemon.stop() == 0
    line = refused(*BROKER, *at(tmp_path / "s"), "-o", "mappedFileSizeCommitLog=2097152")
    assert "1048576" in line and "2097152" in line


def test_a_full_disk_is_an_error_and_no_file_changes(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(4 << 20)
    assert "No space left" in refused(*BROKER, *at(disk / "s"))
    assert not any(disk.iterdir())


def test_a_read_only_folder_is_an_error(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(4 << 20)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert "Read-only" in refused(*BROKER, *at(disk / "s"))
