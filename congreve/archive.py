"""Congreve inside a zip file, as Spark ships it to its workers: compiled modules cannot be
imported from there, so the archive is unpacked once beside itself."""

import os
import shutil
import tempfile
import zipfile


def unpacked(archive: str) -> str:
    """The folder with the archive's contents; made where it is not there yet.

    It lies beside the archive, or where that cannot be written in a temporary folder of this
    process alone. Its name has the archive's time: another build's wheel has the same name.
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
        # Another worker was quicker.
        shutil.rmtree(made)
    return folder


def _extract(archive: str, folder: str) -> None:
    with zipfile.ZipFile(archive) as wheel:
        wheel.extractall(folder)
