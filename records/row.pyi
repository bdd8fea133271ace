"""Nothing for Python; records.columns uses it."""
