"""A name server that saves its settings to files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from congreve.base.clock import Clock
from congreve.broker.accounts.files import AccountFiles
from congreve.broker.accounts.name_server import NameServerAccess
from congreve.engine.state.state_file import DISK, FileSystem, StateFile
from congreve.namesrv.server import NameServer
from congreve.remoting.tls.certificates import ServerCertificates
from congreve.remoting.tls.settings import ServerTls
from congreve.remoting.transport.guard import SharedLimits


def name_server(
    host: str,
    port: int,
    folder: Path | None,
    max_connections: int = 0,
    files: FileSystem = DISK,
    listeners: Mapping[str, tuple[str, int]] | None = None,
    tls: ServerTls | None = None,
    acl_folder: Path | None = None,
) -> NameServer:
    """A name server that saves the changes of administrators in `folder`.

    The files are kvConfig.json and namesrv.properties; without a folder, changes last until the
    name server stops. `max_connections` of 0 derives the limit from the limit of open files.
    `listeners` are those of NameServer. With `acl_folder`, the folder of plain_acl.yml, brokers and
    administrators need accounts. Raises TlsError when `tls` cannot be used.
    (RocketMQ: NamesrvStartup.)
    """

    def state_file(name: str) -> StateFile | None:
        return StateFile(str(folder / name), files=files) if folder else None

    return NameServer(
        host=host,
        port=port,
        kv_store=state_file("kvConfig.json"),
        config_store=state_file("namesrv.properties"),
        limits=SharedLimits(connections=max_connections),
        listeners=listeners,
        access=None
        if acl_folder is None
        else NameServerAccess(AccountFiles(str(acl_folder), Clock(), files), Clock()),
        certificates=ServerCertificates(tls) if tls is not None and tls.enabled else None,
    )
