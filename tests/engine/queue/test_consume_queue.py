"""The consume queue: entries on disk, recovery's cuts, cleaning, search by time."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.engine.errors import StoreFormatError
from congreve.engine.file_sizes import FILLER_SIZE
from congreve.engine.format import CONSUME_QUEUE_ENTRY
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_files import MappingCache
from congreve.io_backends.errors import SegmentSizeError

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/queue_vectors.json").read_text())


def make(folder, file_size=80, cache=None):
    return ConsumeQueue(str(folder / "T" / "0"), "T", 0, file_size, cache)


def filled(folder, count, file_size=80, size=10):
    queue = make(folder, file_size)
    for i in range(count):
        assert queue.append(i, i * size, size, i)
    return queue


def reloaded(folder, file_size=80):
    queue = make(folder, file_size)
    queue.load()
    return queue


def test_an_entry_has_the_bytes_that_java_writes(tmp_path):
    for number, entry in enumerate(GOLDEN["cq_entry"]):
        queue = make(tmp_path / str(number))
        queue.append(0, entry["offset"], entry["size"], entry["tagsCode"])
        assert Path(queue.files[0]).read_bytes() == bytes.fromhex(entry["hex"]).ljust(80, b"\0")


def test_a_queue_that_begins_late_gets_the_filler_of_java(tmp_path):
    queue = make(tmp_path)
    queue.start_at(6)
    queue.append(6, 500, 10, 7)
    filler = bytes.fromhex(GOLDEN["cq_pre_blank_hex"])
    assert [Path(path).name for path in queue.files] == ["00000000000000000080"]
    assert Path(queue.files[0]).read_bytes()[:40] == filler * 2
    assert (queue.min, queue.max, queue[6]) == (6, 7, (500, 10, 7))


def test_filler_does_not_count_as_the_end_of_the_log(tmp_path):
    make(tmp_path).start_at(3)
    queue = reloaded(tmp_path)
    assert (queue.max, queue.max_physical_offset) == (3, 0)


def test_a_late_append_starts_the_queue_and_fills_the_gap(tmp_path):
    queue = make(tmp_path)
    assert queue.append(5, 100, 10, 1)
    assert queue.append(8, 130, 10, 1)
    assert [queue[i][1] for i in range(5, 9)] == [10, FILLER_SIZE, FILLER_SIZE, 10]


def test_a_record_gets_one_entry(tmp_path):
    queue = filled(tmp_path, 3)
    assert not queue.append(2, 20, 10, 2)
    assert not queue.append(0, 30, 10, 2)
    assert queue.max == 3


def test_an_impossible_queue_offset_is_refused(tmp_path):
    queue = filled(tmp_path, 3)
    with pytest.raises(StoreFormatError, match="has offset 1000000"):
        queue.append(1_000_000, 30, 10, 0)


@pytest.mark.parametrize("offset", [0x1B << 56, (1 << 63) - 1, (1 << 63) // 20])
def test_a_queue_does_not_begin_at_an_offset_that_no_file_can_have(offset, tmp_path):
    """Of a damaged record or a lying master: its place in bytes was beyond 64 bits."""
    queue = make(tmp_path)
    with pytest.raises(StoreFormatError, match="no file can have"):
        queue.append(offset, 30, 10, 0)
    assert (queue.max, queue.files) == (0, [])


def test_a_zero_filled_last_file_gives_no_phantom_entry(tmp_path):
    filled(tmp_path, 4).close()
    (tmp_path / "T/0/00000000000000000080").write_bytes(bytes(80))
    queue = reloaded(tmp_path)
    assert (queue.max, queue.max_physical_offset) == (4, 40)
    assert queue.append(4, 40, 10, 9)
    assert reloaded(tmp_path).max == 5


def test_an_empty_first_file_gives_no_phantom_entry(tmp_path):
    folder = tmp_path / "T/0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(bytes(80))
    queue = reloaded(tmp_path)
    assert (queue.min, queue.max) == (0, 0)
    queue.truncate_to(0)
    assert list(folder.iterdir()) == []


def test_entries_out_of_log_order_end_the_queue(tmp_path):
    queue = filled(tmp_path, 3)
    path = Path(queue.files[0])
    data = path.read_bytes()
    path.write_bytes(data[:60] + data[:20])
    assert reloaded(tmp_path).max == 3


@pytest.mark.parametrize("cut", range(11))
def test_a_cut_removes_every_later_entry_from_disk(tmp_path, cut):
    filled(tmp_path, 10).close()
    queue = reloaded(tmp_path)
    queue.truncate_from(cut * 10 + 5)
    assert (queue.max, queue.max_physical_offset) == (cut if cut < 10 else 10, min(cut, 10) * 10)
    rest = b"".join(Path(path).read_bytes() for path in sorted(queue.files))
    assert not any(rest[queue.max * 20 :])
    assert reloaded(tmp_path).max == queue.max
    assert queue.append(queue.max, 1000, 10, 1)
    assert reloaded(tmp_path).max == queue.max


def test_a_cut_at_the_end_zeroes_garbage_after_it(tmp_path):
    filled(tmp_path, 2, 4 * 8000).close()
    path = tmp_path / "T/0/00000000000000000000"
    data = bytearray(path.read_bytes())
    data[20_000] = 1
    path.write_bytes(data)
    queue = reloaded(tmp_path, 4 * 8000)
    queue.truncate_to(2)
    assert not any(path.read_bytes()[40:])


def test_close_leaves_no_file_without_an_entry(tmp_path):
    queue = filled(tmp_path, 4)
    queue.make_room()
    assert len(queue.files) == 2
    queue.close()
    assert len(list((tmp_path / "T/0").iterdir())) == 1
    assert reloaded(tmp_path).max == 4


def test_foreign_files_are_skipped_with_a_warning(tmp_path, caplog):
    filled(tmp_path, 5).close()
    folder = tmp_path / "T/0"
    (folder / ".hidden.swp").write_bytes(b"x")
    (folder / "00000000000000000077").write_bytes(b"x")
    (folder / "00000000000000000160").write_bytes(b"")
    assert reloaded(tmp_path).max == 5
    assert len(caplog.records) == 3


def test_the_error_for_another_file_size_names_it(tmp_path):
    filled(tmp_path, 3).close()
    with pytest.raises(SegmentSizeError, match="80 bytes"):
        reloaded(tmp_path, 100)


def test_cleaning_never_removes_the_last_file(tmp_path):
    queue = filled(tmp_path, 10)
    assert queue.delete_expired(45) == 1
    assert (queue.min, len(queue.files)) == (5, 2)
    assert queue.delete_expired(10_000) == 1
    assert (queue.min, queue.max, len(queue.files)) == (10, 10, 1)
    queue.close()
    again = reloaded(tmp_path)
    again.correct_min_offset(10_000)
    assert (again.min, again.max) == (10, 10)


def test_filler_is_below_any_minimum(tmp_path):
    queue = make(tmp_path)
    queue.append(2, 0, 10, 0)
    queue.load()
    queue.correct_min_offset(0)
    assert queue.min == 2


def test_entries_within_one_file_are_a_view(tmp_path):
    queue = filled(tmp_path, 6)
    view = queue.entries(1, 4)
    assert view.dtype == CONSUME_QUEUE_ENTRY
    assert np.shares_memory(view, queue.entries(0, 4))
    assert view["physical_offset"].tolist() == [10, 20, 30]
    assert queue.entries(2, 99)["tags_code"].tolist() == [2, 3, 4, 5]
    assert len(queue.entries(6, 9)) == 0


def test_views_of_an_evicted_mapping_stay_readable(tmp_path):
    cache = MappingCache(1)
    queue = make(tmp_path, 80, cache)
    for i in range(12):
        queue.append(i, i * 10, 10, i)
    view = queue.entries(0, 4)
    assert len(queue.entries(4, 8)) == 4
    assert len(cache) == 1
    assert view["size"].tolist() == [10] * 4


def test_flush_counts_dirty_bytes(tmp_path):
    queue = filled(tmp_path, 500, 80_000)
    assert queue.dirty_pages == 3
    assert not queue.flush(4)
    assert queue.flush(2)
    assert (queue.dirty_pages, queue.flush()) == (0, False)


def test_destroy_leaves_only_foreign_files(tmp_path):
    queue = filled(tmp_path, 9)
    queue.destroy()
    assert not (tmp_path / "T/0").exists()
    assert queue.append(0, 90, 10, 0)
    assert queue.max == 1


def java_offset_at_time(times, wanted):
    """getOffsetInQueueByTime over one file with distinct, growing store times."""
    low, high, left, right = 0, len(times) - 1, -1, -1
    while high >= low:
        middle = (low + high) // 2
        if times[middle] == wanted:
            return middle
        if times[middle] > wanted:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    if left == -1:
        return right
    if right == -1:
        return left
    return left if abs(wanted - times[left]) <= abs(wanted - times[right]) else right


@settings(max_examples=50)
@given(st.sets(st.integers(0, 60), min_size=1, max_size=12), st.integers(-5, 70))
def test_a_search_by_time_covers_all_files_and_agrees_with_java(tmp_path_factory, distinct, wanted):
    times = sorted(distinct)
    queue = filled(tmp_path_factory.mktemp("q"), len(times), 60)
    found = queue.offset_at_time(wanted, lambda physical, size: times[physical // 10])
    assert found == java_offset_at_time(times, wanted)


def test_a_search_by_time_in_an_empty_queue_returns_zero(tmp_path):
    assert make(tmp_path).offset_at_time(5, lambda physical, size: 0) == 0


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 50), st.integers(-(2**63), 2**63 - 1)),
            st.tuples(st.just("cut"), st.integers(0, 400)),
            st.tuples(st.just("expire"), st.integers(0, 400)),
            st.tuples(st.just("reopen")),
        ),
        max_size=30,
    )
)
def test_a_queue_behaves_like_a_dict(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("q")
    queue = make(folder, 60)
    model: dict[int, tuple[int, int, int]] = {}
    start, end, physical = 0, 0, 0
    log_begin, records = 0, []
    for step in steps:
        match step:
            case ("append", size, tags_code):
                records.append(physical)
                assert queue.append(end, physical, size, tags_code)
                model[end] = (physical, size, tags_code)
                end, physical = end + 1, physical + size
            case ("cut", at):
                at = max(at, log_begin)  # a log is never cut before its begin
                queue.truncate_from(at)
                gone = [i for i, (where, size, _) in model.items() if where + size > at]
                for i in gone:
                    del model[i]
                end = min([*gone, end])
                physical = max(physical if not gone else at, 0)
                records = [where for where in records if where < physical]
            case ("expire", at):
                # A log begins with a record, or at its end.
                at = min((where for where in records if where >= at), default=physical)
                queue.delete_expired(at)
                log_begin = max(log_begin, at)
                model = {i: entry for i, entry in model.items() if entry[0] >= at}
                start = min(model, default=end)
            case _:
                queue.close()
                queue = make(folder, 60)
                queue.load()
                queue.correct_min_offset(model[start][0] if model else physical)
        start = min(start, end)
        assert queue.max == end
        assert {i: queue[i] for i in range(queue.min, queue.max)} == model
