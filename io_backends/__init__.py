"""Where appended bytes are kept and how they become durable.

A Segment (backend.pxd) is memory for the next bytes; a Backend makes appended bytes durable and
reports the durable offset. engine/backends.py chooses one from ioBackend.

- mapped/mapped.pyx: appended bytes are in the page cache; msync of the dirty range, group by
  group, on the threads "flush" and "fault".
- pool.pyx: they are in locked buffers, each as large as a segment, allocated on demand; pwrite of
  the requested range and fdatasync, on the thread "flush". The first page of a group is written
  last, so that a kill leaves the whole group or none of it. If no buffer is free, the broker
  refuses sends and the pool starts a flush that frees one.
- uring/uring.pyx: they are in a window of registered memory (docs/decisions/io-uring.md);
  O_DIRECT writes with RWF_DSYNC, several in flight; zeros on the thread "prewrite". When the disk
  is a whole window behind, Segment.extend() returns false and the broker refuses sends.

The first write or sync that fails is the backend's failure: nothing becomes durable after it, and
engine/health.py refuses messages with the reason while pulls continue. A page of a mapped file
that the disk cannot read raises SIGBUS; bus_error.pyx replaces the page by zeros and reports a
failure. fault/fault.pyx wraps any backend and injects the faults that a test plans. Every file but
the log's goes through files/file_system.py (docs/decisions/file-layer.md).
"""
