"""The files of a consume queue: listing, mapping, creation and removal."""

from libc.stdint cimport int64_t, uint8_t
from posix.mman cimport MADV_RANDOM

import errno
import logging
import os
from collections import OrderedDict, deque

from congreve.io_backends.mapping cimport Mapping

from congreve.io_backends.errors import BackendError, SyncError
from congreve.io_backends.files.file_system import DISK
from congreve.io_backends.limits import max_map_count

logger = logging.getLogger(__name__)

# A quarter of the mappings that the system allows (vm.max_map_count), which the log, the index and
# the rest of the process share.
cdef int MAPPED_QUEUES_MAX = 16384
cdef int MAPPED_QUEUES_MIN = 16


cdef bint all_zero(const uint8_t *data, int64_t length) noexcept nogil:
    cdef int64_t i
    for i in range(length):
        if data[i] != 0:
            return False
    return True


cdef str file_path(str folder, int64_t base):
    return f"{folder}/{base:020d}"


cdef Mapping page_by_page(Mapping mapping):
    """Switch read-ahead off: the first page fault would read megabytes of zeros."""
    mapping.advise(0, mapping.size, MADV_RANDOM)
    return mapping


cdef class MappingCache:
    """A cache of at most `limit` read mappings of queue files, shared by all queues of a store."""

    def __init__(self, int limit=1024, files=DISK):
        self.limit, self.files = limit, files
        self.mappings = OrderedDict()

    def __len__(self):
        return len(self.mappings)

    cdef Mapping get(self, str folder, int64_t base, int64_t size):
        key = (folder, base)
        mapping = self.mappings.get(key)
        if mapping is None:
            mapping = self.files.map(file_path(folder, base), size, writable=False)
            self.mappings[key] = mapping
            if len(self.mappings) > self.limit:
                self.mappings.popitem(last=False)
        else:
            self.mappings.move_to_end(key)
        return mapping

    cdef void drop(self, str folder, int64_t base):
        self.mappings.pop((folder, base), None)

    cpdef drop_below(self, str folder):
        """Drop the mappings of all queues below a topic's folder."""
        below = folder + "/"
        for key in list(self.mappings):
            if key[0].startswith(below):
                self.mappings.pop(key, None)


cdef class WritableMappings:
    """The queues of a store that have their newest file mapped for writing, at most `limit`.

    A `limit` of 0 means mappings_for_queues(); other values below 16 count as 16.
    """

    def __init__(self, int limit=0):
        self.limit = max(limit or mappings_for_queues(), MAPPED_QUEUES_MIN)
        self.queues = deque()

    @property
    def mapped(self):
        """Number of queues that are mapped for writing now."""
        return len(self.queues)


def mappings_for_queues():
    """A quarter of the mappings that the system allows a process, at most 16384."""
    most = max_map_count()
    return MAPPED_QUEUES_MAX if most is None else min(most // 4, MAPPED_QUEUES_MAX)


cdef int64_t length_of(object files, str path) except -1:
    try:
        return files.status(path).st_size
    except OSError as error:
        raise BackendError(f"cannot read {path}: {error.strerror}", error.errno) from error


cdef class QueueFiles:
    """The files of one queue (RocketMQ: MappedFileQueue); used by ConsumeQueue alone."""

    def __init__(self, str folder, int64_t size, MappingCache cache):
        self.folder, self.size, self.cache, self.files = folder, size, cache, cache.files
        self.bases = []
        self.misfits = []

    cdef list scan(self):
        bases, self.misfits = [], []
        try:
            found = self.files.entries(self.folder)
        except FileNotFoundError:
            found = []
        except OSError as error:
            raise BackendError(
                f"cannot list {self.folder}: {error.strerror}", error.errno
            ) from error
        for item in found:
            named = len(item.name) == 20 and item.name.isdecimal() and item.is_file()
            if not named or int(item.name) % self.size:
                logger.warning("skipping %s: not a queue file of %d bytes", item.path, self.size)
                continue
            length = length_of(self.files, item.path)
            if length == 0:
                logger.warning("skipping %s: a crash left it empty", item.path)
            elif length != self.size:
                logger.warning("skipping %s: it has %d bytes instead of %d", item.path, length,
                               self.size)
                self.misfits.append(item.path)
            else:
                bases.append(int(item.name))
        bases.sort()
        self.bases = bases
        return bases

    cdef Mapping mapped(self, int64_t base):
        if base not in self.bases:
            return None
        return self.cache.get(self.folder, base, self.size)

    cdef Mapping writable(self, int64_t base):
        path = file_path(self.folder, base)
        if base in self.bases:
            return page_by_page(self.files.map(path, self.size))
        try:
            self.files.make_folder(self.folder)
            if self.files.exists(path):
                self.files.remove(path)  # made just before a crash: it never held an entry
        except OSError as error:
            raise BackendError(f"cannot create {path}: {error.strerror}", error.errno) from error
        mapping = self.files.map(path, self.size, create=True)
        self.bases = sorted([*self.bases, base])
        self.folder_dirty = True
        return page_by_page(mapping)

    cdef bint has_data_behind(self, Mapping mapping, int64_t start) except -1:
        # Asks the file system for the data ranges, so that a sparse file's holes are not read.
        cdef int64_t end
        try:
            with self.files.open(mapping.path, os.O_RDONLY) as file:
                while start < self.size and (found := self.files.next_data(file, start)):
                    start, end = found
                    if not all_zero(mapping.data + start, end - start):
                        return True
                    start = end
        except OSError as error:
            raise BackendError(
                f"cannot examine {mapping.path}: {error.strerror}", error.errno
            ) from error
        return False

    cdef void forget(self, int64_t base):
        self.cache.drop(self.folder, base)

    cdef remove(self, int64_t base):
        path = file_path(self.folder, base)
        self.bases = [kept for kept in self.bases if kept != base]
        self.forget(base)
        self.folder_dirty = True
        try:
            self.files.remove(path)
        except FileNotFoundError:
            logger.warning("%s was removed by another program", path)
        except OSError as error:
            raise BackendError(f"cannot remove {path}: {error.strerror}", error.errno) from error

    cdef sync(self, int64_t base):
        # msync of a mapping for reading does nothing.
        if base in self.bases:
            self.sync_path(file_path(self.folder, base))

    cdef sync_folder(self):
        if not self.folder_dirty:
            return
        self.folder_dirty = False
        try:
            self.sync_path(self.folder)
        except BackendError:
            self.folder_dirty = True
            raise

    cdef sync_path(self, str path):
        """Sync a file or folder. Raises BackendError."""
        try:
            file = self.files.open(path, os.O_RDONLY)
        except OSError as error:
            raise BackendError(f"cannot open {path}: {error.strerror}", error.errno) from error
        with file:
            try:
                self.files.sync(file)
            except OSError as error:
                raise SyncError(f"cannot sync {path}: {error.strerror}", error.errno) from error

    cdef remove_folder(self):
        try:
            self.files.remove_folder(self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise BackendError(
                    f"cannot remove {self.folder}: {error.strerror}", error.errno
                ) from error
            logger.warning("cannot remove %s: it holds foreign files", self.folder)
