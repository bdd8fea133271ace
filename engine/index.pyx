"""Messages by key: index files that a thread of its own fills behind the log, without the GIL."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr
from posix.time cimport nanosleep, timespec

from congreve.engine.commitlog cimport CommitLog
from congreve.io_backends.atomic cimport full_barrier
from congreve.io_backends.pthread cimport (
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    sched_yield,
)
from congreve.records.checksum cimport index_hash
from congreve.records.cursor cimport prefetch
from congreve.records.layout cimport SYS_TRANSACTION_MASK, SYS_TRANSACTION_ROLLBACK
from congreve.records.record cimport (
    RECORD_BLANK,
    RECORD_END,
    RECORD_OK,
    RecordCheck,
    RecordView,
    check,
    find_property,
)

import json
import logging
import os
import threading
from datetime import datetime

from congreve.engine.errors import StoreFormatError
from congreve.engine.indexfile import IndexFile
from congreve.engine.results import QueryResult
from congreve.engine.statefile import StateFile
from congreve.io_backends.errors import BackendError
from congreve.records.errors import RecordError
from congreve.records.properties import KEYS, UNIQ_KEY
from congreve.records.record import decode_record
from congreve.records.record import index_hash as hash_of

LOG = logging.getLogger(__name__)

cdef long NAP_NS = 2_000_000    # under load the thread looks this often, not at every chunk


# The last lines of a record that ends at `end`, which need not be there, and the next one's head.
cdef inline void expect_record(const uint8_t *end) noexcept nogil:
    prefetch(end - 192)
    prefetch(end - 128)
    prefetch(end - 64)
    prefetch(end)
    prefetch(end + 64)


@cython.final
cdef class KeyIndex:
    def __cinit__(self, config, CommitLog log):
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.arrived, NULL)
        self.config, self.log = config, log
        self.folder = config.index_dir
        self.progress = StateFile(os.path.join(config.own_dir, "index.json"))
        self.files = ()

    def __dealloc__(self):
        pthread_cond_destroy(&self.arrived)
        pthread_mutex_destroy(&self.lock)

    # ---- life ----------------------------------------------------------------------------------

    def start(self, *, bint clean):
        if self.load() and clean:
            last = self.newest()
            if last is not None:
                self.position = max(self.log.min_offset, last.end_physical)
                self.step_over_indexed()
            self.position = max(self.log.min_offset, self.position, self.saved_position())
        else:
            self.position = self.take_back()
        self.indexed = self.position
        self.current = self.newest()
        self.thread = threading.Thread(target=self.run, name="index", daemon=True)
        self.thread.start()

    def stop(self):
        if self.thread is None:
            return
        pthread_mutex_lock(&self.lock)
        self.stopping = True
        pthread_cond_signal(&self.arrived)
        pthread_mutex_unlock(&self.lock)
        self.thread.join()
        self.thread = None
        try:
            if self.current is not None:
                self.current.flush()
            self.progress.replace(json.dumps({"indexed": self.indexed}))
        except (BackendError, OSError) as error:
            LOG.warning("the index was not saved: %s", error)

    def load(self):
        """Open the files up to the first damaged one; False where there is one."""
        if not os.path.isdir(self.folder):
            return True
        names = sorted(name for name in os.listdir(self.folder) if name.isdigit())
        for i, name in enumerate(names):
            try:
                self.files = (*self.files, self.open_file(os.path.join(self.folder, name)))
            except BackendError as error:
                LOG.warning("index file skipped: %s", error)
            except StoreFormatError as error:
                LOG.warning("the index is made anew from here on: %s", error)
                for damaged in names[i:]:
                    os.unlink(os.path.join(self.folder, damaged))
                return False
        return True

    def take_back(self):
        """Remove what may be damaged or name records that the log lost; where to begin anew."""
        begin = -1
        while self.files:
            last = self.newest()
            if begin >= 0 and last.end_physical < self.log.max_offset:
                break
            begin = last.begin_physical
            os.unlink(last.path)
            self.files = self.files[:len(self.files) - 1]
        floor = self.log.min_offset
        if self.files:
            floor = max(floor, self.newest().end_physical)
        return begin if floor <= begin <= self.log.max_offset else floor

    def open_file(self, path, **new):
        return IndexFile(
            path, self.config.max_hash_slot_num, self.config.max_index_num, **new
        )

    def newest(self):
        return self.files[len(self.files) - 1] if self.files else None

    def step_over_indexed(self):
        """The last indexed message is complete after a clean stop (D18): go on behind it."""
        record = self.log.read(self.position)
        if record is not None:
            self.position += len(record)

    def saved_position(self):
        saved = self.progress.load(json.loads) or {}
        position = saved.get("indexed", 0)
        inside = self.log.min_offset <= position <= self.log.max_offset
        return position if inside and self.log.read(position) is not None else 0

    # ---- the thread ----------------------------------------------------------------------------

    def wake(self):
        # Whoever appended has taken the GIL since, a full barrier: `asleep` is not older than that.
        if self.asleep:
            pthread_mutex_lock(&self.lock)
            pthread_cond_signal(&self.arrived)
            pthread_mutex_unlock(&self.lock)

    def run(self):
        cdef Stop stop
        try:
            while True:
                with nogil:
                    stop = self.follow()
                if stop == STOP_ENDED:
                    return
                if stop == STOP_SEGMENT:
                    self.next_segment()
                elif stop == STOP_FILE:
                    self.next_file()
                elif stop == STOP_ROOM:
                    self.current.make_room()
                else:
                    LOG.error("no record at %d: the index skips this segment", self.position)
                    self.position = self.segment.base_offset + self.segment.size
        except (BackendError, OSError) as error:
            LOG.error("messages are no longer indexed: %s", error)

    def next_segment(self):
        if self.segment is not None:
            self.segment.forget_pages(self.segment.size)
        self.position = max(self.position, self.log.min_offset)
        self.segment = self.log.segment_at(self.position)

    def next_file(self):
        last = self.current
        if last is not None:
            last.flush()
        os.makedirs(self.folder, exist_ok=True)
        now = datetime.fromtimestamp(self.log.clock.now_ms() / 1000)
        name = now.strftime("%Y%m%d%H%M%S") + f"{now.microsecond // 1000:03d}"
        while os.path.exists(os.path.join(self.folder, name)):
            name = str(int(name) + 1)
        self.current = self.open_file(
            os.path.join(self.folder, name),
            create=True,
            end_physical=0 if last is None else last.end_physical,
            end_timestamp=0 if last is None else last.end_timestamp,
        )
        self.files = (*self.files, self.current)

    cdef Stop follow(self) noexcept nogil:
        cdef Stop stop
        cdef int64_t end
        while True:
            stop = self.put_keys()
            if stop != STOP_ENDED:
                return stop
            sched_yield()
            if self.segment is not None and self.position < self.segment_end():
                end = self.segment.base_offset + self.segment.published()
                if self.position < end:
                    stop = self.walk(end)
                    if stop == STOP_DAMAGED:
                        return stop
                    continue
            elif self.position < self.log.max_offset:
                return STOP_SEGMENT
            if not self.wait_for_more():
                return STOP_ENDED

    cdef int64_t segment_end(self) noexcept nogil:
        return self.segment.base_offset + self.segment.size

    cdef bint wait_for_more(self) noexcept nogil:
        """Nap, then sleep until there is more; False when it is time to end."""
        cdef timespec nap
        nap.tv_sec = 0
        nap.tv_nsec = NAP_NS
        if not self.stopping:
            nanosleep(&nap, NULL)
        pthread_mutex_lock(&self.lock)
        self.asleep = True
        full_barrier()
        # A wake() that came before `asleep` was seen has left its message in the log.
        while self.position >= self.log.max_offset and not self.stopping:
            pthread_cond_wait(&self.arrived, &self.lock)
        self.asleep = False
        pthread_mutex_unlock(&self.lock)
        return self.position < self.log.max_offset

    cdef Stop walk(self, int64_t end) noexcept nogil:
        """Find keys in the open segment's records up to physical offset `end`."""
        cdef const uint8_t *data = self.segment.data
        cdef int64_t base = self.segment.base_offset
        cdef RecordView view
        cdef RecordCheck status
        cdef Stop stop
        while self.position < end:
            status = check(data + (self.position - base), end - self.position, self.position,
                           False, &view)
            if status == RECORD_BLANK or status == RECORD_END:
                self.position = base + self.segment.size
                return STOP_ENDED
            if status != RECORD_OK:
                return STOP_DAMAGED
            expect_record(data + (self.position - base) + RECORDS_AHEAD * view.size)
            stop = self.take_record(&view)
            if stop != STOP_ENDED:
                return stop
            self.position += view.size
        return STOP_ENDED

    cdef Stop take_record(self, const RecordView *view) noexcept nogil:
        """All keys of one record: its unique key, then each of KEYS. Resumes where it stopped."""
        cdef const uint8_t *key
        cdef const uint8_t *stop
        cdef const uint8_t *end
        cdef int32_t length
        cdef int32_t number = 0
        cdef Stop result
        if (view.sys_flag & SYS_TRANSACTION_MASK) == SYS_TRANSACTION_ROLLBACK:
            return STOP_ENDED
        key = find_property(view.properties, view.properties_length, b"UNIQ_KEY", 8, &length)
        if key != NULL:
            result = self.take_key(view, key, length, number)
            if result != STOP_ENDED:
                return result
            number += 1
        key = find_property(view.properties, view.properties_length, b"KEYS", 4, &length)
        if key != NULL:
            end = key + length
            while key < end:
                stop = <const uint8_t *> memchr(key, c" ", end - key)
                if stop == NULL:
                    stop = end
                if stop > key:
                    result = self.take_key(view, key, <int32_t> (stop - key), number)
                    if result != STOP_ENDED:
                        return result
                    number += 1
                key = stop + 1
        self.keys_done = 0
        return STOP_ENDED

    cdef Stop take_key(self, const RecordView *view, const uint8_t *key, int32_t length,
                       int32_t number) noexcept nogil:
        cdef Key *found
        if number < self.keys_done:
            return STOP_ENDED
        if self.keys_found == KEYS_AHEAD:
            return STOP_FULL
        found = &self.keys[self.keys_found]
        found.hash = index_hash(view.topic, view.topic_length, key, length)
        found.physical_offset = view.physical_offset
        found.store_timestamp = view.store_timestamp
        if self.current is not None:
            self.current.expect(found.hash)
        self.keys_found += 1
        self.keys_done = number + 1
        return STOP_ENDED

    cdef Stop put_keys(self) noexcept nogil:
        """Put what was found; resumes where it stopped."""
        cdef Key *key
        while self.keys_put < self.keys_found:
            if self.current is None or self.current.count >= self.current.capacity:
                return STOP_FILE
            if self.current.count >= self.current.reserved:
                return STOP_ROOM
            key = &self.keys[self.keys_put]
            self.current.put(key.hash, key.physical_offset, key.store_timestamp)
            self.keys_put += 1
        self.keys_found = self.keys_put = 0
        self.indexed = self.position
        return STOP_ENDED

    # ---- what users ask ------------------------------------------------------------------------

    @property
    def indexed_offset(self):
        return self.indexed

    def query(self, str topic, str key, int max_count, int64_t begin_ms, int64_t end_ms):
        key_hash = hash_of(topic, key)
        wanted = min(max_count, self.config.max_msgs_num_batch)
        found = {}
        files = self.files
        for file in reversed(files):
            if len(found) >= wanted:
                break
            for offset in file.find(key_hash, begin_ms, end_ms):
                record = self.matching(offset, topic, key, begin_ms, end_ms)
                if record is not None:
                    found[offset] = record
                if len(found) >= wanted:
                    break
        last = self.newest()
        return QueryResult(
            [found[offset] for offset in sorted(found)],
            0 if last is None else last.end_timestamp,
            0 if last is None else last.end_physical,
        )

    def matching(self, offset, topic, key, begin_ms, end_ms):
        """The record there if it has this key and time (D3: the index knows only hashes)."""
        data = self.log.read(offset)
        if data is None:
            return None
        try:
            record = decode_record(data)
        except RecordError:
            return None
        keys = record.properties.get(KEYS, "").split(" ")
        if record.topic != topic or key not in (record.properties.get(UNIQ_KEY), *keys):
            return None
        return data if begin_ms <= record.store_timestamp <= end_ms else None

    def forget_pages(self):
        cdef IndexFile file
        for file in self.files:
            file.mapping.forget_pages(file.mapping.size)

    def delete_expired(self, int64_t min_physical):
        expired = 0
        while expired < len(self.files) - 1 and self.files[expired].end_physical < min_physical:
            os.unlink(self.files[expired].path)
            expired += 1
        self.files = self.files[expired:]
        return expired
