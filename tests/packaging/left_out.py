"""Modules that a build without their C library leaves out."""

from __future__ import annotations

import sysconfig
from pathlib import Path

FOLDERS = ("io_backends/uring", "remoting/http2")
_EXTENSION = str(sysconfig.get_config_var("EXT_SUFFIX"))


def is_left_out(path: Path) -> bool:
    """Whether the module of a .pyx is one that this build has left out."""
    optional = path.parent.as_posix().endswith(FOLDERS)
    return optional and not path.with_suffix(_EXTENSION).exists()
