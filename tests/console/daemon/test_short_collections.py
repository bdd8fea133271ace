"""Full collections of garbage visit an object of a large table once."""

import gc
from collections.abc import Iterator

import pytest

from congreve.console.daemon.short_collections import THRESHOLDS, ShortCollections

OBJECTS = 200_000


@pytest.fixture
def kept_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("kept_thresholds")
def test_objects_that_survive_a_long_collection_are_frozen() -> None:
    now = 0.0

    def later() -> float:
        nonlocal now
        now += 0.002
        return now

    collections = ShortCollections(later)
    collections.begin()
    try:
        frozen = gc.get_freeze_count()
        table = [[number] for number in range(OBJECTS)]
        unfrozen = OBJECTS - (gc.get_freeze_count() - frozen)
    finally:
        collections.end()
    assert len(table) == OBJECTS
    assert unfrozen <= THRESHOLDS[0] * (THRESHOLDS[1] + 1) * (THRESHOLDS[2] + 2)


@pytest.mark.usefixtures("kept_thresholds")
def test_short_collections_freeze_nothing_and_free_cycles() -> None:
    collections = ShortCollections(lambda: 0.0)
    collections.begin()
    try:
        frozen = gc.get_freeze_count()
        for _ in range(OBJECTS):
            cycle: list[object] = []
            cycle.append(cycle)
        assert gc.get_freeze_count() <= frozen
        assert len(gc.get_objects()) < OBJECTS
    finally:
        collections.end()
