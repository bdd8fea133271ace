class RecordFilter:
    size: int
