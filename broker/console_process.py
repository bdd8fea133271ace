"""The process beside a broker that serves the web console: `consolePort`."""

import importlib.util
import sys

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.side_process import SideProcess

STOP_S = 10.0
NICENESS = 5
"""Below the broker's threads: pages take the time that sends leave over."""


def console_command(config: BrokerConfig) -> list[str]:
    """The command line of `congreve console` for a broker's settings."""
    options = {
        "--namesrv": config.namesrv_addr,
        "--host": config.console_address,
        "--port": str(config.console_port),
        "--store": config.store.root_dir,
        "--certificate": config.console_cert_path,
        "--key": config.console_key_path,
        "--audit-log": config.console_audit_log,
        "--tls": config.tls_config_file if config.tls_enable else "",
        "--lake": config.lake_warehouse,
        "--lake-catalog": config.lake_catalog,
        "--lake-broker": config.broker_name if config.lake_warehouse else "",
    }
    command = [sys.executable, "-m", "congreve", "console", "--stop-with-stdin"]
    command += [part for name, value in options.items() if value for part in (name, value)]
    repeated = {
        "--allow-host": config.console_hosts,
        "--bodies-for": config.console_bodies_for,
        "--lake-property": config.lake_properties,
    }
    for name, values in repeated.items():
        command += [part for value in values.split(";") if value for part in (name, value.strip())]
    return command + (["--hide-bodies"] if config.console_hide_bodies else [])


def console_process(config: BrokerConfig) -> SideProcess | None:
    """The process of a broker, None without consolePort.

    Raises ConfigError without name servers, and when the extra `console` is not installed.
    """
    if not config.console_port:
        return None
    if not config.namesrv_addr:
        raise ConfigError(f"consolePort={config.console_port} needs namesrvAddr")
    if any(importlib.util.find_spec(name) is None for name in ("jinja2", "starlette", "uvicorn")):
        raise ConfigError("consolePort needs the web console: pip install 'congreve[console]'")
    return SideProcess("the web console", console_command(config), niceness=NICENESS, stop_s=STOP_S)
