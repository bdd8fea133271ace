"""The files of a consume queue: found, mapped when needed, made and removed."""

from libc.stdint cimport int64_t, uint8_t
from posix.mman cimport MADV_RANDOM

import errno
import logging
import os
from collections import OrderedDict

from congreve.io_backends.mapping cimport Mapping

from congreve.io_backends.errors import BackendError

LOG = logging.getLogger(__name__)


cdef bint all_zero(const uint8_t *data, int64_t length) noexcept nogil:
    cdef int64_t i
    for i in range(length):
        if data[i] != 0:
            return False
    return True


cdef str file_path(str folder, int64_t base):
    return f"{folder}/{base:020d}"


cdef Mapping page_by_page(Mapping mapping):
    """Read-ahead would fill the page cache with megabytes of zeros at the first entry's fault."""
    mapping.advise(0, mapping.size, MADV_RANDOM)
    return mapping


cdef class MappingCache:
    def __init__(self, int limit=1024):
        self.limit = limit
        self.mappings = OrderedDict()

    def __len__(self):
        return len(self.mappings)

    cdef Mapping get(self, str folder, int64_t base, int64_t size):
        key = (folder, base)
        mapping = self.mappings.get(key)
        if mapping is None:
            mapping = Mapping(file_path(folder, base), size, writable=False)
            self.mappings[key] = mapping
            if len(self.mappings) > self.limit:
                self.mappings.popitem(last=False)
        else:
            self.mappings.move_to_end(key)
        return mapping

    cdef void drop(self, str folder, int64_t base):
        self.mappings.pop((folder, base), None)


cdef class QueueFiles:
    def __init__(self, str folder, int64_t size, MappingCache cache):
        self.folder, self.size, self.cache = folder, size, cache
        self.bases = []

    cdef list scan(self):
        bases = []
        try:
            found = list(os.scandir(self.folder))
        except FileNotFoundError:
            found = []
        except OSError as error:
            raise BackendError(f"cannot list {self.folder}: {error.strerror}") from error
        for item in found:
            named = len(item.name) == 20 and item.name.isdecimal() and item.is_file()
            if not named or int(item.name) % self.size:
                LOG.warning("skipping %s: not a queue file of %d bytes", item.path, self.size)
            elif item.stat().st_size == 0:
                LOG.warning("skipping %s: it was left empty by a crash", item.path)
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
            return page_by_page(Mapping(path, self.size))
        try:
            os.makedirs(self.folder, exist_ok=True)
            if os.path.exists(path):
                os.unlink(path)  # made just before a crash: it never held an entry
        except OSError as error:
            raise BackendError(f"cannot make {path}: {error.strerror}") from error
        mapping = Mapping(path, self.size, create=True)
        self.bases = sorted([*self.bases, base])
        self.folder_dirty = True
        return page_by_page(mapping)

    cdef bint has_data_behind(self, Mapping mapping, int64_t start) except -1:
        # Asks the file system where data is, so that a sparse file's holes stay untouched.
        cdef int64_t end
        fd = os.open(mapping.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while start < self.size:
                start = os.lseek(fd, start, os.SEEK_DATA)
                end = os.lseek(fd, start, os.SEEK_HOLE)
                if not all_zero(mapping.data + start, end - start):
                    return True
                start = end
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise BackendError(f"cannot examine {mapping.path}: {error.strerror}") from error
        finally:
            os.close(fd)
        return False

    cdef void forget(self, int64_t base):
        self.cache.drop(self.folder, base)

    cdef remove(self, int64_t base):
        path = file_path(self.folder, base)
        self.bases = [kept for kept in self.bases if kept != base]
        self.forget(base)
        self.folder_dirty = True
        try:
            os.unlink(path)
        except FileNotFoundError:
            LOG.warning("%s was removed by somebody else", path)
        except OSError as error:
            raise BackendError(f"cannot remove {path}: {error.strerror}") from error

    cdef sync_folder(self):
        if not self.folder_dirty:
            return
        self.folder_dirty = False
        try:
            fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise BackendError(f"cannot sync {self.folder}: {error.strerror}") from error

    cdef remove_folder(self):
        try:
            os.rmdir(self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise BackendError(f"cannot remove {self.folder}: {error.strerror}") from error
            LOG.warning("left %s in place: it holds files that are not ours", self.folder)
