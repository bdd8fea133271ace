"""The files of the key index, and the queries that read them."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from congreve.engine.index.index_file cimport IndexFile
from congreve.engine.log.commit_log cimport CommitLog
from congreve.records.message.properties cimport KEYS, UNIQ_KEY
from congreve.records.record cimport RECORD_OK, RecordView, check, property_of

import logging
import os

from congreve.base.steps import at_once
from congreve.engine.errors import StoreFormatError
from congreve.engine.results import QueryResult
from congreve.io_backends.errors import BackendError
from congreve.records.record import index_hash as hash_of

logger = logging.getLogger(__name__)

# Bytes of records in one answer, which may exceed it by one record; clients refuse 16 MiB.
ANSWER_MAX = 4 << 20


cdef bint has_key(const RecordView *view, bytes key) noexcept:
    """Whether `key` is the record's unique key or one of KEYS."""
    cdef const uint8_t *wanted = <const uint8_t *> PyBytes_AS_STRING(key)
    cdef Py_ssize_t size = len(key)
    cdef const uint8_t *at
    cdef const uint8_t *stop
    cdef const uint8_t *end
    cdef int32_t length
    at = property_of(view, UNIQ_KEY, &length)
    if at != NULL and length == size and memcmp(at, wanted, size) == 0:
        return True
    at = property_of(view, KEYS, &length)
    if at == NULL:
        return False
    end = at + length
    while at <= end:
        stop = <const uint8_t *> memchr(at, c" ", end - at)
        if stop == NULL:
            stop = end
        if stop - at == size and memcmp(at, wanted, size) == 0:
            return True
        at = stop + 1
    return False


cdef class IndexFiles:
    """The files of a KeyIndex, oldest first; any thread may query (RocketMQ: IndexService)."""

    def __init__(self, config, CommitLog log, disk):
        self.config, self.log, self.disk = config, log, disk
        self.folder = config.index_dir
        self.files = ()

    def load(self):
        """Open the files up to the first damaged one; returns False if there is one."""
        names = sorted(name for name in self.names() if name.isdigit())
        for i, name in enumerate(names):
            try:
                self.files = (*self.files, self.open_file(os.path.join(self.folder, name)))
            except BackendError as error:
                logger.warning("index file skipped: %s", error)
            except StoreFormatError as error:
                logger.warning("the index is rebuilt from here on: %s", error)
                for damaged in names[i:]:
                    self.disk.remove(os.path.join(self.folder, damaged))
                return False
        return True

    def remove_doubtful(self):
        """Remove files that may be damaged or name lost records.

        Returns the physical offset from which to index.
        """
        begin = -1
        while self.files:
            last = self.newest()
            if begin >= 0 and last.end_physical < self.log.max_offset:
                break
            begin = last.begin_physical
            self.disk.remove(last.path)
            self.files = self.files[:len(self.files) - 1]
        floor = self.log.min_offset
        if self.files:
            floor = max(floor, self.newest().end_physical)
        return begin if floor <= begin <= self.log.max_offset else floor

    def open_file(self, path, **new):
        """The IndexFile at `path`; `new` goes to its constructor."""
        return IndexFile(
            path,
            self.config.max_hash_slot_num,
            self.config.max_index_num,
            files=self.disk,
            **new,
        )

    def names(self):
        """The names in the folder of the index; none without a folder. Raises OSError."""
        try:
            return [entry.name for entry in self.disk.entries(self.folder)]
        except FileNotFoundError:
            return []

    def newest(self):
        """The newest index file, or None."""
        return self.files[len(self.files) - 1] if self.files else None

    def resume_offset(self, known):
        """Physical offset to index from after a clean stop, by the saved state and the files."""
        last = self.newest()
        position = self.log.min_offset
        if last is not None:
            # The last indexed message is complete after a clean stop (D18).
            record = self.log.read(last.end_physical)
            if record is None and last.end_physical >= self.log.min_offset and last.count > 1:
                return self.remove_doubtful()
            if record is not None:
                position = last.end_physical + len(record)
        if known is None or not self.is_between_records(known.indexed):
            return position
        return known.indexed if known.sums else max(position, known.indexed)

    def is_between_records(self, position):
        """Whether a record begins at this physical offset, or the log ends there."""
        inside = self.log.min_offset <= position <= self.log.max_offset
        return inside and (position == self.log.max_offset or self.log.read(position) is not None)

    def query(self, str topic, str key, int max_count, int64_t begin_ms, int64_t end_ms):
        """Records of `topic` with `key`, stored in [begin, end] (RocketMQ: queryOffset).

        If there are more than `max_count` (at most maxMsgsNumBatch) or 4 MiB, the newest ones. It
        compares the key with the record itself (D3).
        """
        return at_once(self.query_steps(topic, key, max_count, begin_ms, end_ms))

    def query_steps(self, str topic, str key, int max_count, int64_t begin_ms, int64_t end_ms):
        """query() as a generator: its caller may do other work between two candidates."""
        key_hash = hash_of(topic, key)
        wanted_topic, wanted_key = topic.encode(), key.encode()
        wanted = min(max_count, self.config.max_msgs_num_batch)
        found = {}
        size = 0
        for file in reversed(self.files):
            for offset in file.find(key_hash, begin_ms, end_ms):
                if len(found) >= wanted or size >= ANSWER_MAX:
                    break
                yield
                record = None
                if offset >= 0 and offset not in found:
                    record = self.matching(offset, wanted_topic, wanted_key, begin_ms, end_ms)
                if record is not None:
                    found[offset] = record
                    size += len(record)
        last = self.newest()
        return QueryResult(
            [found[offset] for offset in sorted(found)],
            0 if last is None else last.end_timestamp,
            0 if last is None else last.end_physical,
        )

    cdef object matching(self, int64_t offset, bytes topic, bytes key, int64_t begin_ms,
                         int64_t end_ms):
        """The record there if it has this key and time (D3: the index has only hashes)."""
        cdef RecordView view
        cdef const uint8_t[::1] data
        found = self.log.read(offset)
        if found is None or offset + len(found) > self.log.shown_end:
            return None
        data = found
        if check(&data[0], data.shape[0], offset, False, &view) != RECORD_OK:
            return None
        if not begin_ms <= view.store_timestamp <= end_ms or view.topic_length != len(topic):
            return None
        if memcmp(view.topic, PyBytes_AS_STRING(topic), view.topic_length) != 0:
            return None
        return found if has_key(&view, key) else None

    def forget_pages(self):
        """Remove the pages of the files from this process's resident memory."""
        cdef IndexFile file
        for file in self.files:
            file.mapping.forget_pages(file.mapping.size)

    def delete_expired(self, int64_t min_physical):
        """Remove files with entries only before `min_physical`, never the last; their number."""
        expired = 0
        while expired < len(self.files) - 1 and self.files[expired].end_physical < min_physical:
            self.disk.remove(self.files[expired].path)
            expired += 1
        self.files = self.files[expired:]
        return expired
