"""The descriptors that are shipped are those of the .proto files."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2

from . import protos


def test_the_descriptors_are_those_of_the_proto_files() -> None:
    pytest.importorskip("grpc_tools")
    read = descriptor_pb2.FileDescriptorSet.FromString
    shipped = read(protos.DESCRIPTORS.read_bytes())
    made = read(protos.compiled())
    own = "apache/rocketmq/v2/"
    assert [f for f in shipped.file if f.name.startswith(own)] == [
        f for f in made.file if f.name.startswith(own)
    ], "run `PYTHONPATH=tests python -m tidy.protos`"
