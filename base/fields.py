"""Structs whose fields web frameworks read."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec


class Fields:
    """A mixin of results: they are pairs of names and values, as pydantic's models are.

    So ``dict(result)`` has the fields, and FastAPI encodes a result as JSON, also where it is the
    annotated type of what an endpoint returns. This module does not import pydantic.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """The names of the fields, and their values."""
        for name in self.__struct_fields__:  # type: ignore[attr-defined]
            yield name, getattr(self, name)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """The same for vars(): dict() takes a struct with a field `keys` for a mapping."""
        return dict(iter(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[..., Any]) -> Any:
        """The schema that pydantic writes for a result."""
        from pydantic_core import core_schema

        fields = {
            field.name: core_schema.typed_dict_field(
                handler.generate_schema(field.type),  # type: ignore[attr-defined]
                required=field.required,
            )
            for field in msgspec.structs.fields(cls)  # type: ignore[arg-type]
        }
        schema = core_schema.typed_dict_schema(fields)

        def made(values: dict[str, Any]) -> Any:
            return cls(**values)

        from_fields = core_schema.no_info_after_validator_function(made, schema)
        return core_schema.json_or_python_schema(
            json_schema=from_fields,
            python_schema=core_schema.union_schema(
                [core_schema.is_instance_schema(cls), from_fields]
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(
                vars, return_schema=schema
            ),
        )
