"""The columns of the source: names, types, and the selection of a read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import MapType, StringType, StructField, StructType

from congreve.records.columns.arrow import TYPES
from congreve.spark.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from congreve.spark.options import Options

#: What is wrong with a damaged record, else null; the record becomes a row instead of an error.
CORRUPT = "_corrupt"
#: Columns of metadata; reading them does not touch bodies.
METADATA = tuple(name for name in TYPES if name not in ("body", "properties"))
#: Columns that a consume queue's entries hold.
OF_ENTRY = frozenset({"queueOffset", "commitLogOffset", "storeSize", "tagsCode"})
#: Columns that may be null. Spark checks each value of the other columns for null as well,
#: unless the schema excludes nulls.
MAY_LACK = frozenset({"tags", "keys", "msgId", CORRUPT})
PRESETS = {"all": tuple(TYPES), "metadata": METADATA, "rocketmq-spark": tuple(TYPES)[:9]}


def arrow_type(name: str, *, properties_json: bool) -> pa.DataType:
    """The type of a column. Raises SchemaError when the name is unknown."""
    if name == CORRUPT or (name == "properties" and properties_json):
        return pa.string()
    if name not in TYPES:
        raise SchemaError(f"column {name!r} is unknown: there are {', '.join(TYPES)}, {CORRUPT}")
    return TYPES[name]


def wanted_schema(options: Options) -> StructType:
    """The schema of a read without .schema(): option `columns`, a preset or names separated by
    commas.

    Raises OptionError when the option is invalid.
    """
    preset = PRESETS.get(options.columns)
    if preset is not None:
        names = (*preset, CORRUPT) if options.verify_crc else preset
    else:
        names = tuple(dict.fromkeys(part.strip() for part in options.columns.split(",")))
    try:
        return StructType(
            [
                StructField(
                    name,
                    _spark_type(name, options),
                    # the row of a damaged record has only its position
                    nullable=CORRUPT in names or name in MAY_LACK,
                )
                for name in names
            ]
        )
    except SchemaError as error:
        raise OptionError(
            f"option columns is {options.columns!r}: {error}; or one of {', '.join(PRESETS)}"
        ) from error


def checked_schema(schema: StructType, options: Options) -> pa.Schema:
    """The Arrow schema for Spark's `schema`. Raises SchemaError when a column is unknown or has
    another type."""
    for field in schema:
        own = _spark_type(field.name, options)
        if field.dataType.simpleString() != own.simpleString():
            raise SchemaError(
                f"column {field.name} is {own.simpleString()}, "
                f"the schema asks for {field.dataType.simpleString()}"
            )
    return to_arrow_schema(schema, timezone="UTC")


def _spark_type(name: str, options: Options) -> DataType:
    kind = arrow_type(name, properties_json=options.properties_json)
    if pa.types.is_map(kind):
        return MapType(StringType(), StringType(), valueContainsNull=False)
    return from_arrow_type(kind)
