"""One request or answer and its two encodings (RocketMQ: RemotingCommand, RocketMQSerializable)."""

import struct
from io import BufferedReader
from typing import Annotated

import msgspec

from congreve.remoting.errors import FrameError
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.codes import VERSION, CommandFlag, LanguageCode, SerializeType
from congreve.remoting.wire import codec
from congreve.remoting.wire.ext_fields import binary_fields
from congreve.remoting.wire.frame import FRAME_MAX

HEADER_MAX = 256 * 1024
"""Most bytes of a header that Python code reads, because that blocks the event loop.

Compiled code reads ordinary headers, of 48 fields at most, at any length."""

_LENGTHS = struct.Struct(">iI")
_BINARY_HEAD = struct.Struct(">hBhiii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")

# Plain integers: the operators of an enum cost more than the rest of reading an answer.
_RESPONSE, _ONEWAY = int(CommandFlag.RESPONSE), int(CommandFlag.ONEWAY)
_LANGUAGE_NAMES = tuple(language.name for language in LanguageCode)

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class RemotingCommand(msgspec.Struct, kw_only=True):
    """A frame's contents: `ext_fields` is all text, `opaque` pairs an answer with its request.

    (RocketMQ: RemotingCommand.)
    """

    code: int
    language: LanguageCode = LanguageCode.JAVA
    version: int = VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] = {}
    body: bytes = b""
    serialize_type: int = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this is an answer to a request (RocketMQ: isResponseType)."""
        return self.flag & _RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender waits for no answer (RocketMQ: isOnewayRPC)."""
        return self.flag & _ONEWAY != 0

    def reply(
        self,
        code: int,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> "RemotingCommand":
        """The answer to this request, in its serialize type.

        It names JAVA as its language, as the reference does: the one name that every client
        accepts.
        """
        return RemotingCommand(
            code=code,
            opaque=self.opaque,
            flag=int(CommandFlag.RESPONSE),
            remark=remark,
            ext_fields=ext_fields or {},
            body=body,
            serialize_type=self.serialize_type,
        )

    def encode(self) -> bytes:
        """The whole frame. Raises FrameError if it would be longer than FRAME_MAX."""
        if self.serialize_type == SerializeType.JSON:
            frame = codec.encode_json(
                self.code,
                _LANGUAGE_NAMES[self.language],
                self.version,
                self.opaque,
                self.flag,
                self.remark,
                self.ext_fields,
                self.body,
            )
        else:
            frame = codec.encode_frame(self.serialize_type, _binary_header(self), self.body)
        if frame is None:
            raise _too_long(len(self.body))
        return frame

    def encode_uncopied(self) -> tuple[bytes, bytes]:
        """encode() in two parts, of which the second is the body itself. FrameError."""
        head = msgspec.structs.replace(self, body=b"").encode()
        total, mark = _LENGTHS.unpack_from(head)
        total += len(self.body)
        if 4 + total > FRAME_MAX:
            raise _too_long(len(self.body))
        return _LENGTHS.pack(total, mark) + head[_LENGTHS.size :], self.body

    @classmethod
    def decode(cls, frame: bytes | bytearray | memoryview) -> "RemotingCommand":
        """Read one whole frame, length field included. Raises FrameError."""
        plain = codec.decode(frame)
        if plain is None:
            return cls.decode_any(frame)
        code, language, version, opaque, flag, remark, fields, body, serialize_type = plain
        return cls(
            code=code,
            language=_LANGUAGES.get(language, LanguageCode.OTHER),
            version=version,
            opaque=opaque,
            flag=flag,
            remark=remark,
            ext_fields=fields,
            body=body,
            serialize_type=serialize_type,
        )

    @classmethod
    def read(cls, stream: BufferedReader) -> "RemotingCommand":
        """Read the next frame of a stream, without a further copy of its body.

        Raises FrameError, ConnectionResetError if the stream ends, and the stream's errors.
        """
        total, mark = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
        header_length = mark & 0xFFFFFF
        body_length = total - 4 - header_length
        if body_length < 0 or 4 + total > FRAME_MAX:
            raise FrameError(f"frame that says length {total}, header length {header_length}")
        header = _exactly(stream, header_length)
        command = cls.decode(_LENGTHS.pack(4 + header_length, mark) + header)
        command.body = _exactly(stream, body_length)
        return command

    @classmethod
    def decode_any(cls, frame: bytes | bytearray | memoryview) -> "RemotingCommand":
        """decode() without compiled code, for headers that are not plain."""
        view = memoryview(frame)
        if len(view) < 8:
            raise FrameError(f"frame of {len(view)} bytes, at least 8 are needed")
        total, mark = _LENGTHS.unpack_from(view)
        serialize_type, header_length = mark >> 24, mark & 0xFFFFFF
        if total != len(view) - 4 or header_length > total - 4:
            raise FrameError(
                f"frame of {len(view)} bytes says length {total}, header length {header_length}"
            )
        if header_length > HEADER_MAX:
            raise FrameError(
                f"header of {header_length} bytes with unusual fields, or more than 48:"
                f" at most {HEADER_MAX} are read"
            )
        header, body = view[8 : 8 + header_length], bytes(view[8 + header_length :])
        if serialize_type == SerializeType.JSON:
            return _from_json(bytes(header), body)
        if serialize_type == SerializeType.ROCKETMQ:
            return _from_binary(header, body)
        raise FrameError(f"serialize type {serialize_type}: 0 (JSON) and 1 (ROCKETMQ) are known")


_LANGUAGES: dict[int | str, LanguageCode] = {
    name: language for language in LanguageCode for name in (language.name, int(language))
}


def _exactly(stream: BufferedReader, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise ConnectionResetError("the connection was closed")
    return data


def _too_long(body_length: int) -> FrameError:
    return FrameError(
        f"frame with a body of {body_length} bytes: {FRAME_MAX} are allowed with its header: "
        "send less at once"
    )


class _JsonHeader(msgspec.Struct, rename="camel"):
    code: _Int32 = 0
    language: msgspec.Raw = msgspec.Raw(b"")
    version: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    ext_fields: dict[str, msgspec.Raw] | None = None


_JSON_HEADER = msgspec.json.Decoder(_JsonHeader, strict=False)


def _from_json(header: bytes, body: bytes) -> RemotingCommand:
    try:
        head, fields = _read_json(header)
    except (msgspec.MsgspecError, UnicodeError):
        try:
            head, fields = _read_json(fastjson.standard(header.decode("utf-8", "replace")))
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise FrameError(f"JSON header cannot be read: {error}: {header[:200]!r}") from error
    language = bytes(head.language).strip(b'"').decode("utf-8", "replace")
    return RemotingCommand(
        code=head.code,
        language=LanguageCode.__members__.get(language, LanguageCode.OTHER),
        version=head.version,
        opaque=head.opaque,
        flag=head.flag,
        remark=head.remark,
        ext_fields=fields,
        body=body,
    )


def _read_json(header: bytes | str) -> tuple[_JsonHeader, dict[str, str]]:
    try:
        head = _JSON_HEADER.decode(header)
    except RecursionError as error:
        raise FrameError(f"JSON header is nested too deep: {header[:200]!r}") from error
    return head, _texts(head)


def _texts(head: _JsonHeader) -> dict[str, str]:
    """Ext values as text, null left out: C++ clients send numbers and booleans bare."""
    fields = {}
    for key, raw in (head.ext_fields or {}).items():
        value = bytes(raw)
        if value.startswith(b'"'):
            fields[key] = msgspec.json.decode(value, type=str)
        elif value != b"null":
            fields[key] = value.decode()
    return fields


def _binary_header(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode()
    try:
        fields = binary_fields(command.ext_fields)
        head = _BINARY_HEAD.pack(
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise FrameError(f"code {command.code} does not fit a binary header: {error}") from error
    return b"".join((head, remark, _INT.pack(len(fields)), fields))


def _from_binary(header: memoryview, body: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, length = _BINARY_HEAD.unpack_from(header)
        remark, position = _piece(header, _BINARY_HEAD.size, max(length, 0))
        (length,) = _INT.unpack_from(header, position)
        position += 4
        end = position + max(length, 0)
        if end > len(header):
            raise FrameError(f"binary header: ext fields of {length} bytes go beyond its end")
        fields: dict[str, str] = {}
        while position < end:
            (length,) = _SHORT.unpack_from(header[:end], position)
            key, position = _piece(header[:end], position + 2, length)
            (length,) = _INT.unpack_from(header[:end], position)
            fields[key], position = _piece(header[:end], position + 4, length)
    except struct.error as error:
        raise FrameError(f"binary header of {len(header)} bytes ends too early") from error
    return RemotingCommand(
        code=code,
        language=LanguageCode(language) if language < len(LanguageCode) else LanguageCode.OTHER,
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark or None,
        ext_fields=fields,
        body=body,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _piece(header: memoryview, position: int, length: int) -> tuple[str, int]:
    end = position + length
    if length < 0 or end > len(header):
        raise FrameError(f"binary header: a text of {length} bytes at {position} does not fit")
    return str(header[position:end], "utf-8", "replace"), end
