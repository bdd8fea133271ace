"""``congreve bundle``: one file for a bug report, without secrets and bodies of messages."""

from __future__ import annotations

import importlib.metadata
import io
import os
import platform
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from congreve.base.errors import CongreveError
from congreve.base.version import __version__
from congreve.console.report import done, output_option

if TYPE_CHECKING:
    from congreve.client.admin import AdminClient

LOG_BYTES = 1 << 20
"""The end of each log file that is taken."""
BLANK = "(blanked)"
PACKAGES = ("click", "msgspec", "uvloop", "numpy", "pyarrow", "pyiceberg", "pyspark", "starlette")
_NAMES = (
    "secret|password|passwd|passphrase|pwd|token|credential|authorization|signature"
    "|(?:access|api|private)[_-]?key"
)
_SECRET = re.compile(_NAMES, re.I)
_KEY = rf"(?P<key>[\w.\-]*(?:{_NAMES})[\w.\-]*)"
_LINE = re.compile(
    rf"^(?P<before>[ \t#-]*){_KEY}(?P<mark>[ \t]*[=:][ \t]*)(?P<value>\S.*)$", re.I | re.M
)
"""A line of a settings file: its value ends with the line."""
_ASSIGNED = re.compile(
    rf"{_KEY}(?P<mark>[\"']?\s*[=:]\s*)"
    r"(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|(?:[^\s,;}]|[,;}](?=\S))+(?:[ \t]+[^\s,;}=:]+)?)",
    re.I,
)
_IN_URL = re.compile(r"(?<=//)(?:[^\s/@:]*:[^\s\"']*|[^\s/\"']+)(?=@)")
_PEM = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END |\Z)", re.S)
SECRET_LENGTH = 4
"""A shorter value of a secret is blanked by its key only: it may be a part of any word."""


@click.command(help="Collect settings, versions, logs and figures for a bug report in one file.")
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The broker.conf: its settings and its store.",
)
@click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The store, instead of the broker.conf's.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A log file, of which the end is taken; repeatable.",
)
@click.option("-n", "--namesrv", help="Name servers: their brokers say their figures, too.")
@output_option
def bundle(
    target: Path,
    config_file: Path | None,
    folder: Path | None,
    logs: tuple[Path, ...],
    namesrv: str | None,
    output: str,
) -> None:
    """Write TARGET, a .tar.gz: look at it before you send it."""
    if target.exists():
        raise CongreveError(f"{target} exists: choose another name")
    names = []
    try:  # others may not read it: names of topics and hosts are in it
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CongreveError(f"{target} cannot be written: {error.strerror}") from error
    known = [] if config_file is None else _values_of_secrets(_text(config_file))
    with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in _parts(config_file, folder, logs, namesrv):
            entry = tarfile.TarInfo(f"{target.name.partition('.')[0]}/{name}")
            data = without_secrets(text, known).encode()
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
            names.append(name)
    done(output, f"{target} has {', '.join(names)}", bundle=str(target), files=names)


def without_secrets(text: str, known: Sequence[str] = ()) -> str:
    """A text in which the values of secrets are blanked: after their names, in URLs, of PEM, and
    those that are `known`, wherever they are."""
    for value in known:
        text = text.replace(value, BLANK)
    text = _LINE.sub(rf"\g<before>\g<key>\g<mark>{BLANK}", _PEM.sub(rf"\1{BLANK}", text))
    return _IN_URL.sub(BLANK, _ASSIGNED.sub(_blanked, text))


def _values_of_secrets(conf: str) -> list[str]:
    """The values of a broker.conf's secrets, the longest first."""
    values = {found["value"].strip() for found in _LINE.finditer(conf)}
    return sorted((each for each in values if len(each) >= SECRET_LENGTH), key=len, reverse=True)


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _blanked(found: re.Match[str]) -> str:
    quote = '"' if found["value"].startswith('"') or found["mark"].startswith('"') else ""
    return f"{found['key']}{found['mark']}{quote}{BLANK}{quote}"


def _parts(
    config_file: Path | None, folder: Path | None, logs: tuple[Path, ...], namesrv: str | None
) -> Iterator[tuple[str, str]]:
    """The files of a bundle: a name and a text each. What cannot be read says why."""
    yield "versions.json", _json(_versions())
    root = folder
    if config_file is not None:
        yield "broker.conf", _text(config_file)
        try:
            settings = _settings(config_file)
            root = root or Path(settings["storePathRootDir"])
            yield "settings.json", _json(settings)
        except CongreveError as error:
            yield "settings.json", _json({"error": str(error)})
    if root is not None:
        yield "store.json", _json(_store(root, config_file))
        yield "disks.json", _json(_disks(root))
    for number, log in enumerate(logs, 1):
        yield f"log-{number}-{log.name}", _tail(log)
    if namesrv is not None:
        yield "cluster.json", _json(_cluster(namesrv))


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _versions() -> dict[str, Any]:
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "congreve": __version__,
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "packages": packages,
    }


def _settings(config_file: Path) -> dict[str, str]:
    """All settings, with their defaults; secrets are blanked by their keys."""
    from congreve.broker.broker_conf import load_config

    return _blank(load_config(config_file).config.as_properties())


def _blank(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: BLANK if text and _SECRET.search(key) else text for key, text in settings.items()}


def _store(root: Path, config_file: Path | None) -> object:
    from congreve.console.store import store_parts
    from congreve.engine.store_files.verify import StoreExaminer

    try:
        _, log = store_parts(None, config_file) if config_file else store_parts(root, None)
        return StoreExaminer(str(root), str(log)).info()
    except CongreveError as error:
        return {"error": str(error)}


def _disks(root: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in (root, root / "commitlog"):
        try:
            disk = shutil.disk_usage(path)
            files = os.statvfs(path)
        except OSError as error:
            rows.append({"path": str(path), "error": str(error)})
            continue
        rows.append(
            {
                "path": str(path),
                "bytes": disk.total,
                "used_bytes": disk.used,
                "free_bytes": disk.free,
                "free_inodes": files.f_favail,
            }
        )
    return rows


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES))
        return file.read().decode("utf-8", "replace")


def _cluster(namesrv: str) -> object:
    from congreve.client.admin.reports import BrokerReports
    from congreve.console.connection import ask

    async def question(admin: AdminClient) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, group in (await admin.cluster_info()).broker_addr_table.items():
            for number, address in group.broker_addrs.items():
                reports = BrokerReports(admin, address)
                try:
                    figures: object = {
                        "runtime": await reports.runtime(),
                        "settings": _blank(await reports.settings()),
                    }
                except CongreveError as error:
                    figures = {"error": str(error)}
                found[f"{name}:{number}"] = figures
        return found

    try:
        return ask(namesrv, question)
    except CongreveError as error:
        return {"error": str(error)}
