"""SIGBUS on a mapped file ends no process and acknowledges nothing."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_record

SEGMENT = 1 << 20
BODY = bytes(1000)


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root), mapped_file_size_commit_log=SEGMENT, message_index_enable=False
    )


def put_safely(store: MessageStore) -> bool:
    put = store.put(Record(topic="T", body=BODY))
    return put.end > 0 and store.wait_durable(put.end, 5)


def test_a_log_that_loses_pages_refuses_appends_and_still_serves_reads(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path), backend=MmapBackend(), disk_use=lambda _: 0.5) as store:
        for _ in range(20):
            assert put_safely(store)
        assert len(store.log.segments) == 1
        segment = tmp_path / "commitlog" / f"{0:020d}"
        os.truncate(segment, 20_480)
        stored = 20
        while put_safely(store):
            stored += 1
        assert stored == 20
        assert store.backend.failure_errno == errno.EIO
        assert store.check_writable() is not None
        assert "disk failed" in store.check_writable()
        assert not put_safely(store)
        found = store.get("T", 0, 0, 1)
        assert decode_record(b"".join(found.buffers)).body == BODY
        os.truncate(segment, SEGMENT)
    with MessageStore(config_of(tmp_path), disk_use=lambda _: 0.5) as store:
        assert 0 < store.max_offset("T", 0) <= 20
        assert put_safely(store)


@pytest.mark.parametrize("ours", [True, False])
def test_only_bus_errors_in_our_own_files_are_caught(tmp_path: Path, ours: bool) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(8192))
    made = (
        f"Mapping({str(file)!r}, 8192)" if ours else f"mmap.mmap(os.open({str(file)!r}, 2), 8192)"
    )
    program = (
        "import mmap, os\n"
        "from congreve.io_backends.mapping import Mapping\n"
        f"Mapping({str(file)!r}, 8192)\n"
        f"memory = memoryview({made})\n"
        f"os.truncate({str(file)!r}, 0)\n"
        "print(memory[5000])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == ((0, b"0\n") if ours else (-7, b"")), done.stderr
