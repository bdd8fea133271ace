"""The key index: a thread follows the log and fills index files, without the GIL."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr
from posix.time cimport nanosleep, timespec

from congreve.base.atomic cimport (
    full_barrier,
    load_acquire,
    load_acquire_int,
    store_release_int,
)
from congreve.base.cursor cimport prefetch
from congreve.base.pthread cimport (
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
from congreve.engine.index.index_files cimport IndexFiles
from congreve.engine.log.commit_log cimport CommitLog
from congreve.records.checksum cimport index_hash
from congreve.records.layout cimport SYS_TRANSACTION_MASK, SYS_TRANSACTION_ROLLBACK
from congreve.records.message.properties cimport KEYS, UNIQ_KEY
from congreve.records.record cimport (
    RECORD_BLANK,
    RECORD_OK,
    RecordCheck,
    RecordView,
    check,
    property_of,
)

import logging
import os
import threading
import time
from datetime import datetime

from congreve.engine.errors import StoreError
from congreve.engine.health import may_have_lost
from congreve.engine.index.state import IndexState, IndexStateFile
from congreve.engine.recovery.scan import LogScanner
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK

logger = logging.getLogger(__name__)

PART = "index"  # the name of this part of the store in Health
PAUSES, PAUSE_S = 10, 0.1  # before a retry after a failure

cdef long NAP_NS = 2_000_000    # under load the thread looks this often instead of at every chunk


# Prefetches the last cache lines before `end`, where a record should end, and the head of the next
# record.
cdef inline void expect_record(const uint8_t *end) noexcept nogil:
    prefetch(end - 192)
    prefetch(end - 128)
    prefetch(end - 64)
    prefetch(end)
    prefetch(end + 64)


@cython.final
cdef class KeyIndex(IndexFiles):
    """Finds messages by UNIQ_KEY and KEYS (RocketMQ: IndexService).

    A thread reads the log behind its writer and fills the files; it sleeps while no message
    arrives. It reports shortages to `health` and retries.
    """

    def __cinit__(self):
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.arrived, NULL)

    def __init__(self, config, CommitLog log, health, disk=DISK):
        IndexFiles.__init__(self, config, log, disk)
        self.health = health
        self.state_file = IndexStateFile(config.own_dir, disk)
        self.known = IndexState()
        self.sums = {}

    def __dealloc__(self):
        pthread_cond_destroy(&self.arrived)
        pthread_mutex_destroy(&self.lock)

    # --- life

    @property
    def indexed_offset(self):
        """Physical offset up to which messages are indexed (dispatch progress)."""
        return self.indexed

    def start(self, *, bint clean):
        """Open the files and start to follow the log, after recovery has set the log's end.

        After an unclean stop it rebuilds the newest file, and each file with records that the log
        lost, from its first message on (D2); also a damaged file and all later ones.
        """
        known = self.state_file.load()
        there = set(self.names())
        if self.load() and clean:
            self.position = self.resume_offset(known)
        else:
            self.position = self.remove_doubtful()
            if known is not None:
                # The records of removed files are indexed again.
                taken_back = there - {os.path.basename(file.path) for file in self.files}
                for name in taken_back & known.sums.keys():
                    del known.sums[name]
        if known is not None:
            self.known = known
        self.indexed = self.position
        self.current = self.newest()
        self.thread = threading.Thread(target=self.run, name="index", daemon=True)
        self.thread.start()

    def stop(self):
        """Index the rest of the log, save the state, stop the thread; idempotent."""
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
            self.save()
        except (BackendError, OSError) as error:
            logger.warning("the index was not saved: %s", error)

    def save(self):
        """Save the checksums of the full files, and the end of the indexed part of the log."""
        sums = {}
        for file in self.files:
            name = os.path.basename(file.path)
            if name not in self.sums or file is self.current:
                self.sums[name] = file.checksum()
            sums[name] = self.sums[name]
        try:
            self.state_file.replace(IndexState(self.log.min_offset, self.indexed, sums))
        except StoreError as error:
            logger.warning("the state of the index was not saved: %s", error)

    def check_files(self):
        """Rebuild from the first file that is missing or has another checksum than saved."""
        found = {os.path.basename(file.path): file for file in self.files}
        for name, crc in sorted(self.known.sums.items()):
            file = found.get(name)
            if self.stopping:
                return
            if file is None and self.log.min_offset > self.known.begin:
                continue  # expired
            if file is None or file.checksum() != crc:
                self.drop_from(name)
                return
            self.sums[name] = crc

    def drop_from(self, first):
        """Remove the index file `first` and all later ones; the thread indexes their part again."""
        logger.warning(
            "the index file %s has changed since it was closed: rebuilding from there on", first
        )
        self.files = tuple(file for file in self.files if os.path.basename(file.path) < first)
        for name in self.names():
            if name.isdigit() and name >= first:
                self.disk.remove(os.path.join(self.folder, name))
        self.current = self.newest()
        self.position = self.log.min_offset
        if self.current is not None:
            self.position = max(self.position, self.current.end_physical)
        self.indexed = self.position

    # --- the thread

    cpdef void wake(self) noexcept nogil:
        """Wake the thread after an append; cheap, and without effect while the thread runs."""
        full_barrier()  # other threads see the appended bytes before this one reads `asleep`
        if load_acquire_int(&self.asleep):
            pthread_mutex_lock(&self.lock)
            pthread_cond_signal(&self.arrived)
            pthread_mutex_unlock(&self.lock)

    def run(self):
        """Index appended messages until stop(); the body of the thread."""
        cdef Stop stop = STOP_SEGMENT
        cdef bint is_checked = False, failed = False
        while True:
            try:
                if not is_checked:
                    self.check_files()
                    is_checked = True
                while stop != STOP_ENDED:
                    with nogil:
                        stop = self.follow()
                    self.resume(stop)
                    self.health.works(PART)
                return
            except (BackendError, OSError, MemoryError) as error:
                self.health.note_shortage(PART, str(error) or "out of memory")
                if may_have_lost(error):
                    logger.error("the index stops, queries will miss new messages: %s", error)
                    return
                if not self.pause():
                    return
            except Exception as error:
                if not failed:
                    failed = True
                    logger.exception("the index failed; it goes on after a pause")
                self.health.note_shortage(PART, f"{type(error).__name__}: {error}")
                if not self.pause():
                    return

    cdef int resume(self, Stop stop) except -1:
        """Do the step that needs the GIL, so that follow() can continue.

        Raises BackendError, OSError.
        """
        if stop == STOP_SEGMENT:
            self.next_segment()
        elif stop == STOP_FILE:
            self.next_file()
        elif stop == STOP_ENTRIES:
            self.current.make_room()
        elif stop == STOP_DAMAGED:
            self.pass_damage()
        return 0

    def pass_damage(self):
        """Continue with the next record of the segment."""
        cdef int64_t base = self.segment.base_offset
        cdef int64_t end = self.segment.published_end()
        found = LogScanner().resync(self.segment, base, self.position + 1)
        logger.error("no record at %d: the index continues at %d", self.position, found or end)
        self.position = found or end

    def pause(self):
        """Wait before a retry after a shortage; returns False when the thread must stop."""
        for _ in range(PAUSES):
            if self.stopping:
                return False
            time.sleep(PAUSE_S)
        return True

    def next_segment(self):
        """Continue in the segment that holds `position`."""
        if self.segment is not None:
            self.segment.forget_pages(self.segment.size)
        self.position = max(self.position, self.log.min_offset)
        self.segment = self.log.segment_at(self.position)

    def next_file(self):
        """Save the full file and create the next one. Raises BackendError, OSError."""
        last = self.current
        if last is not None:
            last.flush()
            self.save()
        self.disk.make_folder(self.folder)
        now = datetime.fromtimestamp(self.log.clock.now_ms() / 1000)
        name = now.strftime("%Y%m%d%H%M%S") + f"{now.microsecond // 1000:03d}"
        while self.disk.exists(os.path.join(self.folder, name)):
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
                end = self.segment.published_end()
                if self.position < end:
                    stop = self.walk(end)
                    if stop == STOP_DAMAGED:
                        return stop
                    continue
            elif self.position < load_acquire(&self.log.max_offset):
                return STOP_SEGMENT
            if not self.wait_for_more():
                return STOP_ENDED

    cdef int64_t segment_end(self) noexcept nogil:
        return self.segment.base_offset + self.segment.size

    cdef bint wait_for_more(self) noexcept nogil:
        """Nap, then sleep until there is more to index; returns False when the thread must stop."""
        cdef timespec nap
        nap.tv_sec = 0
        nap.tv_nsec = NAP_NS
        if not self.stopping:
            nanosleep(&nap, NULL)
        pthread_mutex_lock(&self.lock)
        store_release_int(&self.asleep, True)
        full_barrier()
        # A wake() that ran before `asleep` was set did not signal, but its message is in the log.
        while self.position >= load_acquire(&self.log.max_offset) and not self.stopping:
            pthread_cond_wait(&self.arrived, &self.lock)
        store_release_int(&self.asleep, False)
        pthread_mutex_unlock(&self.lock)
        return self.position < load_acquire(&self.log.max_offset)

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
            if status == RECORD_BLANK and self.position + view.size == self.segment_end():
                self.position = self.segment_end()
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
        key = property_of(view, UNIQ_KEY, &length)
        if key != NULL:
            result = self.take_key(view, key, length, number)
            if result != STOP_ENDED:
                return result
            number += 1
        key = property_of(view, KEYS, &length)
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
        """Put the found keys; resumes where it stopped."""
        cdef Key *key
        while self.keys_put < self.keys_found:
            if self.current is None or self.current.count >= self.current.capacity:
                return STOP_FILE
            if self.current.count >= self.current.reserved:
                return STOP_ENTRIES
            key = &self.keys[self.keys_put]
            self.current.put(key.hash, key.physical_offset, key.store_timestamp)
            self.keys_put += 1
        self.keys_found = self.keys_put = 0
        self.indexed = self.position
        return STOP_ENDED
