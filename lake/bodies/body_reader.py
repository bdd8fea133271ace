"""Bodies of a batch as columns; bodies that do not fit are found one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from congreve.lake.bodies.body_schema import BodySchema

ARROW_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)
LONGEST_REASON = 500


class BodyReader:
    """Decodes bodies into the columns of a table."""

    def __init__(self, schema: BodySchema, columns: Mapping[str, pa.Field]) -> None:
        """`columns` are those of the table, by the name of the field in the body."""
        self._schema = schema
        self._names = [column.name for column in columns.values()]
        self._type = pa.struct([pa.field(name, each.type) for name, each in columns.items()])

    def read(self, bodies: pa.Array) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """The columns of all bodies that fit, and by its place the reason for each other body."""
        decode, errors = self._schema.decode, self._schema.errors
        rows: list[Any] = []
        failed: dict[int, str] = {}
        for place, body in enumerate(bodies.to_pylist()):
            try:
                rows.append(decode(body))
            except errors as error:
                failed[place] = _reason(error)
        try:
            found = pa.array(rows, self._type)
        except ARROW_ERRORS:
            found = self._one_by_one(rows, failed, len(bodies))
        return dict(zip(self._names, found.flatten(), strict=True)), failed

    def _one_by_one(self, rows: list[Any], failed: dict[int, str], count: int) -> pa.Array:
        """The rows that Arrow takes: a decimal may have too many digits."""
        taken = []
        places = [place for place in range(count) if place not in failed]
        for place, row in zip(places, rows, strict=True):
            try:
                pa.array([row], self._type)
                taken.append(row)
            except ARROW_ERRORS as error:
                failed[place] = _reason(error)
        return pa.array(taken, self._type)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]
