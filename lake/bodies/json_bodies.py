"""Bodies in JSON: a decoder for the fields of an Arrow schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, NotRequired, TypedDict, cast

import msgspec
import pyarrow as pa
from msgspec import Meta
from pyarrow import types

_TYPES = {
    pa.bool_(): bool,
    pa.int32(): Annotated[int, Meta(ge=-(2**31), lt=2**31)],
    pa.int64(): Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    pa.float32(): float,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes,
    pa.date32(): date,
    pa.time64("us"): Annotated[time, Meta(tz=False)],
    pa.timestamp("us"): Annotated[datetime, Meta(tz=False)],
    pa.timestamp("us", tz="UTC"): Annotated[datetime, Meta(tz=True)],
}


def decoder(fields: Iterable[pa.Field]) -> Callable[[bytes], Any]:
    """A function that decodes one body into a dict of the fields; it skips what is not a field.

    Times and dates are texts (RFC 3339), bytes are base64, decimals are numbers or texts. A field
    that may be null may be missing. The function raises MsgspecError, ValueError or
    RecursionError for a body that does not fit.
    """
    return msgspec.json.Decoder(_record("Body", fields)).decode


def _record(name: str, fields: Iterable[pa.Field]) -> Any:
    members = {field.name: _member(field) for field in fields}
    return cast(Any, TypedDict)(name, members)


def _member(field: pa.Field) -> Any:
    found = _type_of(field)
    return NotRequired[found] if field.nullable else found


def _type_of(field: pa.Field) -> Any:
    kind = field.type
    if types.is_list(kind):
        found: Any = list[_type_of(kind.value_field)]  # type: ignore[misc]
    elif types.is_map(kind):
        found = dict[str, _type_of(kind.item_field)]  # type: ignore[misc]
    elif types.is_struct(kind):
        found = _record(field.name, kind)
    elif types.is_decimal(kind):
        found = Decimal
    else:
        found = _TYPES[kind]
    return found | None if field.nullable else found
