"""A PySpark data source for stores and clusters: consume queues as numpy arrays, batches as
Arrow."""
