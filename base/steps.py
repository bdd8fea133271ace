"""Work as a generator: it yields wherever a pause is possible, and returns its result."""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

ITEMS_OF_STEP = 64


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


def portions(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in portions of ITEMS_OF_STEP, each for one step; the last one may be empty."""
    rest = iter(items)
    while True:
        portion = list(islice(rest, ITEMS_OF_STEP))
        yield portion
        if len(portion) < ITEMS_OF_STEP:
            return
