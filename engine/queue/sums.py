"""Checksums of consume queue files, which find a flipped bit without reading the log."""

from congreve.engine.file_sizes import ENTRY_SIZE
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.records.record import crc32


def sums_to(queue: ConsumeQueue, end: int) -> list[int]:
    """CRC-32 of each file's bytes, the last one's up to entry `end`; reads only new entries.

    Empty for a queue without files. One thread calls this.
    """
    each = queue.file_size // ENTRY_SIZE
    first = _first_file(queue)
    if first is None or end <= first:
        return []
    sums, done = queue.sums, queue.summed
    if sums is None or done > end or done - each * len(sums) >= first:
        sums, done = [], first
    while done < end:
        stop = min((done // each + 1) * each, end)
        data = queue.stored(done, stop)
        if data is None:
            return []
        if done % each:
            sums[-1] = crc32(data, sums[-1])
        else:
            sums.append(crc32(data))
        done = stop
    queue.sums, queue.summed = sums[-((done - 1 - first) // each + 1) :], done
    return list(queue.sums)


def parts(queue: ConsumeQueue, sums: list[int], end: int) -> list[tuple[int, int, int]]:
    """(start, stop, CRC-32) of the entries that each of `sums` covers, the last file first."""
    each = queue.file_size // ENTRY_SIZE
    found = []
    for crc in reversed(sums):
        start = (end - 1) // each * each
        found.append((start, end, crc))
        end = start
    return found


def is_sound(queue: ConsumeQueue, start: int, stop: int, crc: int) -> bool:
    """Whether entries of one file have this CRC-32; True for missing entries."""
    data = queue.stored(start, stop)
    return data is None or crc32(data) == crc


def _first_file(queue: ConsumeQueue) -> int | None:
    files = queue.files
    return int(files[0][-20:]) // ENTRY_SIZE if files else None
