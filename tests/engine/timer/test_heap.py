"""Runs and memory are merged into one sorted stream, for any blocks and pauses."""

import numpy
from hypothesis import given
from hypothesis import strategies as st

from congreve.engine.timer.heap import TimerHeap
from congreve.engine.timer.run import Merge, Run, RunReader, merged_blocks, write_run

FOREVER = (1 << 63) - 1
keys = st.tuples(st.integers(-(2**40), 2**41), st.integers(0, 2**50))


def pairs_of(found: list[tuple[int, int]]) -> numpy.ndarray:
    return numpy.array(found, numpy.int64).reshape(-1, 2)


def taken(heap: TimerHeap, now: int, limit: int) -> list[tuple[int, int]]:
    return [tuple(row[:2]) for row in heap.take(now, limit).tolist()]


@given(st.lists(keys, unique=True, max_size=200), st.integers(1, 50), st.data())
def test_entries_in_memory_are_returned_sorted_and_not_before_their_time(
    found, limit, data
) -> None:
    heap = TimerHeap()
    pairs = pairs_of(found)
    heap.add(*(numpy.ascontiguousarray(column) for column in pairs.T))
    now = data.draw(st.sampled_from([key[0] for key in found] or [0]))
    due = sorted(key for key in found if key[0] <= now)
    got = []
    while piece := taken(heap, now, limit):
        got += piece
    assert got == due
    assert heap.memory_count == heap.count == len(found) - len(due)
    later = [key[0] for key in found if key[0] > now]
    assert heap.next_wake == min(later, default=FOREVER)
    assert sorted(map(tuple, heap.memory().tolist())) == sorted(k for k in found if k[0] > now)


@given(
    st.lists(st.lists(keys, min_size=1, max_size=30), max_size=6),
    st.lists(keys, max_size=30),
    st.integers(1, 7),
    st.integers(1, 9),
)
def test_runs_fed_in_blocks_merge_with_what_is_given_back(runs, memory, block, limit) -> None:
    heap = TimerHeap()
    pairs = pairs_of(memory)
    heap.add(*(numpy.ascontiguousarray(column) for column in pairs.T))
    rest = {}
    for run in runs:
        slot = heap.new_slot()
        ordered = pairs_of(sorted(run))
        rest[slot] = [ordered[i : i + block] for i in range(0, len(ordered), block)]
        heap.feed(slot, rest[slot].pop(0))
    got: list[tuple[int, int]] = []
    number = 0
    while True:
        rows = heap.take(FOREVER, limit)
        # Every third time only one row is handled.
        number += 1
        count = 1 if number % 3 == 0 else len(rows)
        heap.give_back(rows[count:])
        got += [tuple(row[:2]) for row in rows[:count].tolist()]
        if heap.starved >= 0:
            if rest[heap.starved]:
                heap.feed(heap.starved, rest[heap.starved].pop(0))
            else:
                heap.end(heap.starved)
        elif not len(rows):
            break
    assert got == sorted([*memory, *(key for run in runs for key in run)])


def test_entries_written_to_a_run_are_removed_from_memory() -> None:
    heap = TimerHeap()
    heap.add(numpy.array([5, 6, 7]), numpy.array([10, 20, 30]))
    heap.forget(-1, below=30)
    assert heap.memory().tolist() == [[7, 30]]


def test_a_run_of_many_blocks_is_read_searched_and_merged(tmp_path) -> None:
    folder = str(tmp_path / "timer")
    whole = numpy.stack([numpy.arange(20_000) // 3, numpy.arange(20_000)], axis=1)
    odd, even = whole[1::2], whole[::2]
    runs = [write_run(folder, "1.run", [odd[:7], odd[7:]]), write_run(folder, "2.run", [even])]
    assert all(run.whole for run in runs)
    assert not Run(folder, "1.run", 10_001).whole
    assert runs[1].last == (6666, 19_998)
    assert runs[1].first_after(6666, 19_997) == 9_999
    assert runs[1].first_after(-1, 0) == 0 and runs[1].first_after(7000, 0) == 10_000
    late = [RunReader(run, 100, lambda pairs: pairs[:, 1] % 5 == 0) for run in runs]
    found = numpy.concatenate(list(merged_blocks(late)))
    assert found.tolist() == [pair for pair in whole[200:].tolist() if pair[1] % 5 == 0]


def test_the_entries_of_a_dropped_run_are_dropped(tmp_path) -> None:
    folder = str(tmp_path)
    merge = Merge()
    runs = [write_run(folder, f"{n}.run", [pairs_of([(n, n), (n + 10, n)])]) for n in (1, 2)]
    for run in runs:
        merge.add_run(RunReader(run, 0, lambda pairs: pairs[:, 0] > -1))
    rows = merge.take(FOREVER, 2)
    merge.heap.give_back(rows)
    merge.drop_runs(runs[:1])
    assert merge.take(FOREVER, 9)[:, :2].tolist() == [[2, 2], [12, 2]]
