"""Bodies as columns: schemas, decoders, and the two tables of a topic."""
