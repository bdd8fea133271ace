"""The base of typed headers: reading from a command's ext fields and writing to them."""

from functools import cache
from typing import Annotated, Self, get_args, get_type_hints

import msgspec

from congreve.base.numbers import java_integer
from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.command import RemotingCommand

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_BOOLEAN = 1  # bit


class Header(msgspec.Struct, rename="camel"):
    """Ext fields with types (RocketMQ: CommandCustomHeader). A field without default is required.

    On the wire every value is text: numbers in decimal, a boolean is true for "true" in any case
    and false for all else. Fields that are not declared are ignored.
    """

    @classmethod
    def read(cls, command: RemotingCommand) -> Self:
        """Take the header out of a command. Raises HeaderError, naming the field and its value."""
        fields: dict[str, str | int | bool] = {**command.ext_fields}
        for name, bits in _not_text(cls).items():
            text = command.ext_fields.get(name)
            if text is not None:
                fields[name] = _value(cls, command, name, text, bits)
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise HeaderError(_explain(cls, error, command)) from error

    def fields(self) -> dict[str, str]:
        """Ext fields for the wire; what is None is left out."""
        names = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        pairs = ((wire, getattr(self, name)) for wire, name in names)
        return {wire: _text(value) for wire, value in pairs if value is not None}


def _text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(int(value))


def _value(
    cls: type[Header], command: RemotingCommand, name: str, text: str, bits: int
) -> int | bool:
    if bits == _BOOLEAN:
        return text.lower() == "true"
    value = java_integer(text, bits)
    if value is None:
        raise HeaderError(
            f"request code {command.code}, {cls.__name__}: the field {name!r} has the value"
            f" {text!r}: it has to be a number of {bits} bits"
        )
    return value


@cache
def _not_text(cls: type[Header]) -> dict[str, int]:
    """The bits of each field that is a number, or _BOOLEAN."""
    hints = get_type_hints(cls, include_extras=True)
    found = {}
    for wire, name in zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True):
        kinds = {hints[name], *get_args(hints[name])}
        if bool in kinds:
            found[wire] = _BOOLEAN
        elif Int32 in kinds:
            found[wire] = 32
        elif Int64 in kinds or int in kinds:
            found[wire] = 64
    return found


def _explain(cls: type[Header], error: msgspec.ValidationError, command: RemotingCommand) -> str:
    text = str(error)
    where = f"request code {command.code}, {cls.__name__}"
    field = text.rpartition("$.")[2].rstrip("`") if "$." in text else None
    if field is None:
        missing = text.rpartition("required field ")[2].strip("`")
        return f"{where}: the field {missing!r} is missing"
    value = command.ext_fields.get(field)
    return f"{where}: the field {field!r} has the value {value!r}: {text.partition(' - ')[0]}"
