"""A name server that keeps in files what administrators change."""

from __future__ import annotations

from pathlib import Path

from congreve.engine.state.state_file import StateFile
from congreve.namesrv.server import NameServer
from congreve.remoting.transport.guard import SharedLimits


def name_server(host: str, port: int, folder: Path | None, max_connections: int = 0) -> NameServer:
    """A name server that keeps in `folder` what administrators change."""
    return NameServer(
        host=host,
        port=port,
        kv_store=StateFile(str(folder / "kvConfig.json")) if folder else None,
        config_store=StateFile(str(folder / "namesrv.properties")) if folder else None,
        limits=SharedLimits(connections=max_connections),
    )
