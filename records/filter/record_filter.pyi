from typing import final

@final
class FilterMemory: ...

class RecordFilter:
    size: int
