"""The descriptors of RocketMQ 5's protocol and of reflection: ``python -m tidy.protos``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "broker/grpc"
DESCRIPTORS = FOLDER / "rocketmq_v2.binpb"
FILES = ("apache/rocketmq/v2/service.proto", "grpc/reflection/v1/reflection.proto")


def compiled() -> bytes:
    """The descriptors, without what is only text."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", f"-I{FOLDER / 'protos'}"),
                *("--include_imports", f"--descriptor_set_out={out}", *FILES),
            ],
            check=True,
        )
        return out.read_bytes()


if __name__ == "__main__":
    DESCRIPTORS.write_bytes(compiled())
