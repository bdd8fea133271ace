"""The process that serves the web console: its command line, refused settings, its first page."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.servers import free_port

import congreve
from congreve.broker.config import BrokerConfig
from congreve.broker.config_parts import ConsoleConfig
from congreve.broker.errors import ConfigError
from congreve.broker.processes.console_process import console_command, console_process


def test_the_command_has_the_settings(tmp_path: Path) -> None:
    config = BrokerConfig(
        namesrv_addr="10.0.0.5:9876",
        console=ConsoleConfig(
            port=8080,
            address="0.0.0.0",
            hosts="console.example.org; c",
            hide_bodies=True,
            bodies_for="ops",
        ),
    )
    config.store.root_dir = str(tmp_path)
    command = console_command(config)
    options = list(pairwise(command))
    for wanted in (
        ("--namesrv", "10.0.0.5:9876"),
        ("--host", "0.0.0.0"),
        ("--port", "8080"),
        ("--store", str(tmp_path)),
        ("--allow-host", "console.example.org"),
        ("--allow-host", "c"),
        ("--bodies-for", "ops"),
    ):
        assert wanted in options
    assert "--hide-bodies" in command and "--tls" not in command


def test_a_broker_without_a_port_starts_no_process() -> None:
    assert console_process(BrokerConfig()) is None
    with pytest.raises(ConfigError, match="needs namesrvAddr"):
        console_process(BrokerConfig(console=ConsoleConfig(port=8080)))


async def test_a_broker_starts_its_console_and_ends_it(tmp_path: Path) -> None:
    port = free_port()
    async with congreve.serve(tmp_path, consolePort=port) as node:
        name = node.broker.config.broker_name

        async def is_there() -> bool:
            try:
                return name in await asyncio.to_thread(page, port)
            except urllib.error.URLError:
                return False

        await eventually(is_there)
    with pytest.raises(urllib.error.URLError):
        page(port)


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/brokers", timeout=60) as answer:
        text: str = answer.read().decode()
        return text
