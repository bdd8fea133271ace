"""Every access to files goes through the file layer: io_backends/files (docs/decisions)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("engine", "broker", "namesrv")
#: They read what is no part of an open store, write nothing and promise nothing.
READERS = {
    "broker/broker_conf.py": "it reads broker.conf before there is a store",
    "broker/grpc/protos.py": "it reads a file of this package",
    "broker/admin/settings.py": "it reads broker.conf again, and writes it through a StateFile",
}
PURE = (
    r"path\.(?:join|basename|dirname|abspath|expanduser)\b|O_[A-Z]|SEEK_[A-Z]"
    r"|(?:strerror|getpid|[gs]etpriority|PRIO_PROCESS|sysconf|cpu_count|fsencode|DirEntry)\b"
    r"|(?:PathLike|stat_result|eventfd_read)\b"
)
DIRECT = re.compile(
    rf"(?<![\w.])os\.(?!{PURE})\w+"
    r"|(?<![\w.\"])open\((?!\)|self)|(?<![\w.])Mapping\(|(?<![\w.])mmap\."
    r"|\b(?:numpy|np)\.(?:fromfile|memmap)\(|\.tofile\("
    r"|(?<![\w.])fcntl\.(?:fcntl|flock|lockf)\(|(?<![\w.])(?:shutil|tempfile)\.(?!disk_usage)\w+"
    r"|\.(?:read_text|read_bytes|write_text|write_bytes|iterdir|rglob|is_file|is_dir|lstat)\("
    r"|posix\.(?:fcntl|stat|unistd) cimport|sync_file_system|io_backends\.backend import.*sync"
)
DIR_ENTRY = re.compile(r"\b(?:entry|item)\.is_(?:file|dir)\(\)")  # answered by the listing


def direct_calls(text: str) -> list[str]:
    return [found.group() for found in DIRECT.finditer(DIR_ENTRY.sub("", text))]


def test_every_module_uses_the_file_layer_for_the_disk() -> None:
    wrong = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".py", ".pyx") and not name.startswith(tuple(READERS)):
                wrong[name] = direct_calls(path.read_text())
    assert len(wrong) > 100
    assert not {name: calls for name, calls in wrong.items() if calls}


def test_the_check_finds_direct_calls() -> None:
    for line in (
        "os.fsync(descriptor)",
        "if os.path.exists(path):",
        "with open(path) as file:",
        "Mapping(path, size)",
        "fcntl.flock(file, 1)",
        "Path(name).read_text()",
    ):
        assert direct_calls(line), line
    for line in ("os.path.join(a, b)", "self._files.open(path, os.O_RDONLY)", "entry.is_dir()"):
        assert not direct_calls(line), line
