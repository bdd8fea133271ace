"""Work as a generator: it yields wherever a pause is possible, and returns its result."""

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(work: Generator[object, None, T]) -> T:
    """Run all steps of `work` without a pause, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def freed(items: dict[Any, Any] | list[Any]) -> Generator[None, None, None]:
    """Empty a large container in steps: freeing it at once would block the event loop."""
    while items:
        if isinstance(items, dict):
            items.popitem()
        else:
            items.pop()
        yield
