"""Congreve inside a zip file, as Spark ships it to its workers: compiled modules cannot be
imported from there, so the archive is unpacked once beside itself."""

import os
import shutil
import tempfile
import zipfile


def unpacked(archive: str) -> str:
    """The folder with the archive's contents; the first call unpacks it.

    It is beside the archive or, when that folder is read-only, in a temporary folder of this
    process. Its name contains the archive's modification time, because wheels of two builds have
    the same name.
    """
    folder = f"{archive}.{os.stat(archive).st_mtime_ns:x}.unpacked"
    if os.path.isdir(folder):
        return folder
    parent = os.path.dirname(archive)
    if not os.access(parent, os.W_OK):
        folder = tempfile.mkdtemp(prefix="congreve-")
        _extract(archive, folder)
        return folder
    made = tempfile.mkdtemp(prefix="congreve-", dir=parent)
    _extract(archive, made)
    try:
        os.rename(made, folder)
    except OSError:
        # Another worker created it first.
        shutil.rmtree(made)
    return folder


def _extract(archive: str, folder: str) -> None:
    with zipfile.ZipFile(archive) as wheel:
        wheel.extractall(folder)
