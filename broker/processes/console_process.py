"""The process beside a broker that serves the web console: `consolePort`."""

import importlib.util
import sys

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.processes.side_process import SideProcess

STOP_S = 10.0
NICENESS = 5
"""Below the broker's threads: pages take the time that sends leave over."""


def console_command(config: BrokerConfig) -> list[str]:
    """The command line of `congreve console` for a broker's settings."""
    options = {
        "--namesrv": config.namesrv_addr,
        "--host": config.console.address,
        "--port": str(config.console.port),
        "--store": config.store.root_dir,
        "--certificate": config.console.cert_path,
        "--key": config.console.key_path,
        "--audit-log": config.console.audit_log,
        "--tls": config.tls.config_file if config.tls.enable else "",
        "--lake": config.lake.warehouse,
        "--lake-catalog": config.lake.catalog,
        "--lake-broker": config.broker_name if config.lake.warehouse else "",
    }
    command = [sys.executable, "-m", "congreve", "console", "--stop-with-stdin"]
    command += [part for name, value in options.items() if value for part in (name, value)]
    repeated = {
        "--allow-host": config.console.hosts,
        "--bodies-for": config.console.bodies_for,
        "--lake-property": config.lake.properties,
    }
    for name, values in repeated.items():
        command += [part for value in values.split(";") if value for part in (name, value.strip())]
    return command + (["--hide-bodies"] if config.console.hide_bodies else [])


def console_process(config: BrokerConfig) -> SideProcess | None:
    """The process of a broker, None without consolePort.

    Raises ConfigError without name servers, and when the extra `console` is not installed.
    """
    if not config.console.port:
        return None
    if not config.namesrv_addr:
        raise ConfigError(f"consolePort={config.console.port} needs namesrvAddr")
    if any(importlib.util.find_spec(name) is None for name in ("jinja2", "starlette", "uvicorn")):
        raise ConfigError("consolePort needs the web console: pip install 'congreve[console]'")
    return SideProcess("the web console", console_command(config), niceness=NICENESS, stop_s=STOP_S)
