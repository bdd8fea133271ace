"""The console's process: options, https, its end."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from harness.certificates import Authority

import congreve
from congreve.console.web.serving.handshakes import HANDSHAKES_MAX
from congreve.console.web.serving.server import CONNECTIONS_MAX
from tests.console.conftest import Daemon
from tests.console.conftest import congreve as run


def test_the_console_serves_https_with_a_certificate(node: congreve.Node, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("console")
    files = ("--certificate", str(certificate), "--key", str(key))
    daemon = Daemon("console", "-n", node.address, "--port", "0", *files)
    found = re.fullmatch(r"ready: console https://127\.0\.0\.1:(\d+)", daemon.ready)
    assert found is not None, daemon.ready
    context = ssl.create_default_context(cafile=str(authority.path))
    connection = http.client.HTTPSConnection("127.0.0.1", int(found[1]), context=context)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == 200
    assert "Secure" in (answer.getheader("set-cookie") or "")
    connection.close()
    assert daemon.stop() == 0


def test_an_open_live_page_does_not_delay_the_stop(node: congreve.Node) -> None:
    daemon = Daemon("console", "-n", node.address, "--port", "0")
    connection = http.client.HTTPConnection(daemon.ready.rpartition("//")[2])
    connection.request("GET", "/live")
    answer = connection.getresponse()
    assert answer.readline().startswith(b"event:")
    assert daemon.stop() == 0
    connection.close()


def test_connections_without_a_request_take_no_place_of_a_page(node: congreve.Node) -> None:
    daemon = Daemon("console", "-n", node.address, "--port", "0")
    address = daemon.ready.rpartition("//")[2]
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        for number in range(CONNECTIONS_MAX + 20):
            silent = stack.enter_context(socket.create_connection((host, int(port))))
            if number % 2:
                silent.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        connection = http.client.HTTPConnection(address)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
    assert daemon.stop() == 0


def test_handshakes_that_never_end_keep_no_page_away(node: congreve.Node, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("console")
    files = ("--certificate", str(certificate), "--key", str(key))
    daemon = Daemon("console", "-n", node.address, "--port", "0", *files)
    host, _, port = daemon.ready.rpartition("//")[2].rpartition(":")
    context = ssl.create_default_context(cafile=str(authority.path))
    with ExitStack() as stack:
        for number in range(3 * HANDSHAKES_MAX):
            silent = stack.enter_context(socket.create_connection((host, int(port))))
            if number % 2:
                silent.sendall(b"\x16\x03\x01\x02\x00")
        connection = http.client.HTTPSConnection(host, int(port), context=context)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        open_files = len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))
        assert open_files < 2 * HANDSHAKES_MAX
    assert daemon.stop() == 0


def test_a_large_block_goes_back_to_the_system() -> None:
    """Also after the first one, at which glibc raises the size of the blocks that it keeps."""
    program = """
import ctypes
from congreve.console.web.serving.command import return_large_blocks

class Info(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "arena o s mapped_count mapped u f used b k".split()]

info = ctypes.CDLL(None).mallinfo2
info.restype = Info
return_large_blocks()
before = info().mapped
for _ in range(2):
    block = bytes(5 << 20)
    assert info().mapped - before >= len(block)
    del block
    assert info().mapped == before
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_error_for_invalid_options_is_one_line() -> None:
    taken = run("console", "--certificate", __file__)
    assert taken.returncode == 1
    assert "give both, or neither" in taken.stderr
    no_log = run("console", "--port", "0", "--audit-log", f"{__file__}/log")
    assert no_log.stderr == (
        f"congreve: cannot use the audit log {__file__}/log: Not a directory\n"
    )
    no_key = run("console", "--port", "0", "--certificate", __file__, "--key", __file__)
    assert (no_key.returncode, len(no_key.stderr.splitlines())) == (1, 1)
    assert f"{__file__} are no certificate and its key" in no_key.stderr
    refused = run("console", "--host", "192.0.2.1", "--port", "0")
    assert refused.returncode == 1
    assert "cannot serve on 192.0.2.1:0" in refused.stderr
