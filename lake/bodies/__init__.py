"""Bodies of messages as columns of a table: JSON or Avro by a given schema."""
