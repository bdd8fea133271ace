"""The messages of RocketMQ 5's protocol, by the package protobuf (apache/rocketmq-apis)."""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "apache.rocketmq.v2"
_DESCRIPTORS = "rocketmq_v2.binpb"


class Protos:
    """The classes of the package's messages, as attributes.

    They have a pool of their own: this process may have those of RocketMQ's Python client, too.
    `python -m tidy.protos` makes the descriptors of the .proto files.
    """

    def __init__(self) -> None:
        data = Path(__file__).with_name(_DESCRIPTORS).read_bytes()
        found = descriptor_pb2.FileDescriptorSet.FromString(data)
        self.pool = descriptor_pool.DescriptorPool()
        for file in found.file:
            self.pool.AddSerializedFile(file.SerializeToString())
        self.services = [
            f"{file.package}.{service.name}" for file in found.file for service in file.service
        ]
        self._classes = message_factory.GetMessageClassesForFiles(
            [file.name for file in found.file], self.pool
        )

    def of(self, package: str, name: str) -> Any:
        """The class of a message of any package. Raises KeyError."""
        return self._classes[f"{package}.{name}"]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.of(PACKAGE, name)
        except KeyError:
            raise AttributeError(name) from None
