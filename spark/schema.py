"""The columns that Spark sees: names, types, and which of them a read wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import MapType, StringType, StructField, StructType

from congreve.records.arrow import TYPES
from congreve.spark.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from congreve.spark.options import Options

#: What is wrong with a row's record, null where nothing is: a row of its own instead of an error.
CORRUPT = "_corrupt"
#: Columns that say nothing of what a message carries; reading them never touches a body.
METADATA = tuple(name for name in TYPES if name not in ("body", "properties"))
#: What a consume queue's entries tell without the log.
OF_ENTRY = frozenset({"queueOffset", "commitLogOffset", "storeSize", "tagsCode"})
#: Columns that a message may lack. Spark asks for each value of the others whether it is null, too,
#: unless their schema says that it never is; that costs it a third of its time.
MAY_LACK = frozenset({"tags", "keys", "msgId", CORRUPT})
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
                    _spark_type(name, options),
                    # a damaged record's row has nothing but its place
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
    """The Arrow schema that Spark expects for `schema`; SchemaError for what we cannot give."""
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
