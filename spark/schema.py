"""The columns that Spark sees: names, types, and which of them a read wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from congreve.records.arrow import TYPES
from congreve.spark.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from congreve.spark.options import Options

#: What is wrong with a row's record, null where nothing is: a row of its own instead of an error.
CORRUPT = "_corrupt"
#: Columns that say nothing of what a message carries; reading them never touches a body.
METADATA = tuple(name for name in TYPES if name not in ("body", "properties"))
#: What a consume queue's entries tell without the log.
OF_ENTRY = frozenset({"queueOffset", "commitLogOffset", "storeSize", "tagsCode"})
PRESETS = {"all": tuple(TYPES), "metadata": METADATA, "rocketmq-spark": tuple(TYPES)[:9]}


def arrow_type(name: str, *, properties_json: bool) -> pa.DataType:
    """The type of a column; SchemaError where there is none of that name."""
    if name == CORRUPT or (name == "properties" and properties_json):
        return pa.string()
    if name not in TYPES:
        raise SchemaError(f"no column is named {name!r}: there are {', '.join(TYPES)}, {CORRUPT}")
    return TYPES[name]


def wanted_schema(options: Options) -> StructType:
    """The schema of a read without .schema(): option `columns`, a preset or names with commas."""
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
                    from_arrow_type(arrow_type(name, properties_json=options.properties_json)),
                )
                for name in names
            ]
        )
    except SchemaError as error:
        raise OptionError(
            f"option columns is {options.columns!r}: {error}; or one of {', '.join(PRESETS)}"
        ) from error


def checked_schema(schema: StructType, options: Options) -> pa.Schema:
    """The Arrow schema that Spark expects for `schema`; SchemaError for what we cannot give."""
    for field in schema:
        own = from_arrow_type(arrow_type(field.name, properties_json=options.properties_json))
        if field.dataType != own:
            raise SchemaError(
                f"column {field.name} is {own.simpleString()}, "
                f"the schema asks for {field.dataType.simpleString()}"
            )
    return to_arrow_schema(schema, timezone="UTC")
