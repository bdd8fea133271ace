"""Server reflection: tools such as grpcurl ask a server for its services and their messages.

(RocketMQ 5: ProtoReflectionService in GrpcServerBuilder.)
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protos import Protos
from congreve.remoting.lanes.call import GrpcStatus

METHOD = "ServerReflection/ServerReflectionInfo"
PACKAGES = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
"""Both have the same messages; older tools ask for the second one."""


class Reflection:
    """Answers from the descriptors of `protos`; it needs no account.

    (RocketMQ 5: ProtoReflectionService.)
    """

    def __init__(self, protos: Protos) -> None:
        self._protos = protos

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the method."""
        return tuple(f"/{package}.{METHOD}" for package in PACKAGES)

    def serve(self, call: GrpcCall, message: bytes) -> None:
        """Answer a ServerReflectionRequest."""
        try:
            request = self._protos.of(PACKAGES[0], "ServerReflectionRequest").FromString(message)
        except DecodeError:
            call.end(GrpcStatus.INVALID_ARGUMENT, "the message is not a ServerReflectionRequest")
            return
        response = self._protos.of(PACKAGES[0], "ServerReflectionResponse")(
            valid_host=request.host, original_request=request
        )
        try:
            self._fill(request, response)
        except KeyError as error:
            response.error_response.error_code = GrpcStatus.NOT_FOUND
            response.error_response.error_message = str(error.args[0])
        call.reply(response.SerializeToString(), last=False)

    def ended(self, call: GrpcCall) -> None:
        """The client has ended the call."""

    def _fill(self, request: Any, response: Any) -> None:
        """Fill in the answer. Raises KeyError for an unknown name."""
        kind = request.WhichOneof("message_request")
        pool = self._protos.pool
        if kind == "list_services":
            for name in self._protos.services:
                response.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            file = pool.FindFileByName(request.file_by_filename)
            response.file_descriptor_response.file_descriptor_proto.extend(_with_imports(file))
        elif kind == "file_containing_symbol":
            file = pool.FindFileContainingSymbol(request.file_containing_symbol)
            response.file_descriptor_response.file_descriptor_proto.extend(_with_imports(file))
        else:
            response.error_response.error_code = GrpcStatus.UNIMPLEMENTED
            response.error_response.error_message = "there are no extensions"


def _with_imports(file: Any) -> Iterator[bytes]:
    found = {file.name: file}
    rest = [file]
    while rest:
        for each in rest.pop().dependencies:
            if each.name not in found:
                found[each.name] = each
                rest.append(each)
    return (each.serialized_pb for each in found.values())
