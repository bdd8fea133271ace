"""PySpark reading a store: consume queues as numpy arrays, batches as Arrow."""
