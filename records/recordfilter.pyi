class RecordFilter:
    """What a message's properties must satisfy; compiled classes derive from it."""
