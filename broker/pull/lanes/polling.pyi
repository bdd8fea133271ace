from typing import final

WATCHER_OF_LOOP: int

def watcher_of_lane(number: int) -> int: ...

@final
class LanePolling:
    def __len__(self) -> int: ...
