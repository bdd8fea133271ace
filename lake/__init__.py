"""Topics as Iceberg tables: durable messages become Parquet files, each message exactly once."""
