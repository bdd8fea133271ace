"""Limits the size of a micro-batch: each queue gets a fair share, and the sum is exact."""

from __future__ import annotations

from congreve.spark.offsets import Range
from congreve.spark.planning import Source


def within_rows(ranges: list[Range], limit: int) -> list[Range]:
    """Cut the ranges to `limit` messages in total, each in proportion to its length."""
    total = sum(stop - start for _, start, stop in ranges)
    if total <= limit:
        return ranges
    shares = [(stop - start) * limit // total for _, start, stop in ranges]
    left = limit - sum(shares)
    found = []
    for (queue, start, stop), share in zip(ranges, shares, strict=True):
        extra = min(left, stop - start - share)
        left -= extra
        found.append(Range(queue, start, start + share + extra))
    return found


def within_bytes(ranges: list[Range], limit: int, source: Source) -> list[Range]:
    """Cut the ranges to records of `limit` bytes in total, by the sizes in the consume queues.

    A single message that is larger is still taken, so that a stream makes progress.
    """
    total = sum(stop - start for _, start, stop in ranges)
    left = limit
    found = []
    for queue, start, stop in ranges:
        end = source.stop_within(queue, start, stop, limit * (stop - start) // total)
        left -= source.size_of(queue, start, end)
        found.append(Range(queue, start, end))
    for number, (queue, start, end) in enumerate(found):
        stop = ranges[number].stop
        further = source.stop_within(queue, end, stop, left)
        left -= source.size_of(queue, end, further)
        found[number] = Range(queue, start, further)
    if ranges and all(part.start == part.stop for part in found):
        first = ranges[0]
        found[0] = Range(first.queue, first.start, first.start + 1)
    return found
