"""The wheel in an environment with nothing else: the commands, the container's, the services'."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import RawConfigParser
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT
from tests.public_api.test_typing import MYPY, PYRIGHT, refused_lines, wrong_lines

TIMEOUT_S = 60
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DATA = "/var/lib/congreve"

pytestmark = pytest.mark.slow


class Installed:
    """Runs commands that find nothing but the environment: no compiler, no JDK, no checkout."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.home = home
        self.path = {"PATH": str(folder), "HOME": str(home)}
        assert not [name for name in ("cc", "gcc", "java") if shutil.which(name, path=str(folder))]

    def run(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [str(self.folder / arguments[0]), *arguments[1:]],
            cwd=self.home,
            env=self.path | environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def serving(self, *arguments: str, **environment: str) -> Iterator[str]:
        """The ready line of a daemon that must end with exit code 0 on SIGTERM."""
        with subprocess.Popen(
            [str(self.folder / arguments[0]), *arguments[1:]],
            cwd=self.home,
            env=self.path | environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as daemon:
            try:
                assert daemon.stdout is not None
                yield daemon.stdout.readline().strip()
            finally:
                daemon.send_signal(signal.SIGTERM)
                assert daemon.wait(TIMEOUT_S) == 0


@pytest.fixture
def environment(installed: Path, tmp_path: Path) -> Installed:
    return Installed(installed, tmp_path)


def name_server_of(ready: str) -> str:
    return re.findall(r"name server ([\d.]+:\d+)", ready)[0]


@pytest.mark.parametrize("command", [MYPY, PYRIGHT], ids=["mypy", "pyright"])
def test_type_checkers_know_the_installed_package(
    installed: Path, tmp_path: Path, command: list[str]
) -> None:
    option = "--python-executable" if command is MYPY else "--pythonpath"
    there = [each for each in command if each not in ("--pythonpath", sys.executable)]
    there = [sys.executable, *there, option, str(installed / "python")]
    assert refused_lines(tmp_path, there, packages="") == wrong_lines()


def test_the_wheel_is_for_other_machines(repaired: Path) -> None:
    assert re.fullmatch(r"congreve-[\d.]+-cp3\d+-cp3\d+-manylinux_\w+\.whl", repaired.name)


def test_an_installed_broker_serves_a_send_and_a_read(environment: Installed) -> None:
    with environment.serving(
        *("congreve", "run", "--port", "0", "--namesrv-port", "0", "--data", "data")
    ) as ready:
        namesrv = name_server_of(ready)
        environment.run("congreve", "send", "-n", namesrv, "-t", "orders", "-m", "hello")
        read = ("congreve", "cat", "-n", namesrv, "-t", "orders", "-o", "beginning", "-e")
        assert environment.run(*read) == "hello\n"
    assert "1 records" in environment.run("congreve", "store", "verify", "data/store")


def test_every_backend_is_in_the_wheel(environment: Installed) -> None:
    pytest.importorskip("congreve.io_backends.uring.uring", reason="not installed: liburing")
    environment.run("python", "-c", "import congreve.io_backends.uring.uring")


def test_http2_is_in_the_wheel(environment: Installed) -> None:
    pytest.importorskip("congreve.remoting.http2.sessions", reason="not installed: libnghttp2")
    environment.run("python", "-c", "import congreve.remoting.http2.sessions")


def instruction(name: str) -> str:
    """The last instruction of that name in the Containerfile."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{name}\s+(.+)$", text, re.MULTILINE)[-1]


def test_the_commands_of_the_container_run(environment: Installed, tmp_path: Path) -> None:
    """The commands of the image, run without it, with free ports and a temporary folder."""
    command = json.loads(instruction("ENTRYPOINT")) + json.loads(instruction("CMD"))
    check = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert DATA in command and instruction("VOLUME") == DATA == instruction("WORKDIR")
    assert instruction("USER") not in ("root", "0")
    assert instruction("EXPOSE").split() == ["9876", "10909", "10911"]
    here = [str(tmp_path) if part == DATA else part for part in command]
    with environment.serving(*here, "--port", "0", "--namesrv-port", "0") as ready:
        asked = {"NAMESRV_ADDR": f"127.0.0.1:{name_server_of(ready).rpartition(':')[2]}"}
        environment.run(*check, **asked)
    with pytest.raises(AssertionError):
        environment.run(*check, **asked)


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(path)
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_service_reports_that_it_is_ready(
    environment: Installed, tmp_path: Path, path: Path
) -> None:
    service = unit(path)["Service"]
    assert service["Type"] == "notify"
    command = [part.replace(DATA, str(tmp_path)) for part in shlex.split(service["ExecStart"])]
    assert command[0] == "/opt/congreve/bin/congreve"
    command[0] = "congreve"
    if "-c" in command:
        conf = tmp_path / "broker.conf"
        conf.write_text((DEPLOY / "broker.conf").read_text().replace(DATA, str(tmp_path)))
        command[command.index("-c") + 1] = str(conf)
        command += ["-o", "listenPort=0", "-o", "bindAddress=127.0.0.1"]
        command += ["-o", "brokerIP1=127.0.0.1", "-n", ""]
    else:
        command += ["--port", "0", "--host", "127.0.0.1"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(TIMEOUT_S)
        with environment.serving(*command, NOTIFY_SOCKET=str(tmp_path / "notify")):
            assert systemd.recv(100) == b"READY=1"
        assert systemd.recv(100) == b"STOPPING=1"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="not installed: systemd")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_finds_no_error_in_a_service(installed: Path, tmp_path: Path, path: Path) -> None:
    here = tmp_path / path.name
    here.write_text(path.read_text().replace("/opt/congreve/bin", str(installed)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if path.name in line] == []


def test_the_services_are_hardened_alike_and_may_use_io_uring() -> None:
    allowed = {path.stem: dict(unit(path)["Service"]) for path in UNITS}
    broker, namesrv = allowed["congreve-broker"], allowed["congreve-namesrv"]
    assert broker["LimitMEMLOCK"] == "infinity"
    assert broker["SystemCallFilter"] == "@system-service"
    needs = {"ExecStart", "LimitMEMLOCK", "ReadWritePaths", "TimeoutStartSec", "TimeoutStopSec"}
    assert broker.keys() - namesrv.keys() == needs - {"ExecStart"}
    assert {key: broker[key] for key in broker.keys() - needs} == {
        key: namesrv[key] for key in namesrv.keys() - needs
    }
