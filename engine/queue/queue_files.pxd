from libc.stdint cimport int64_t
from congreve.io_backends.mapping cimport Mapping


cdef class MappingCache:
    # Read-only mappings of queue files, evicted in LRU order: queues may have more files than a
    # process may have mappings.
    cdef readonly int limit
    """Number of mappings at most."""
    cdef object files           # FileSystem of these queues
    cdef object mappings        # OrderedDict of (folder, base): Mapping

    cdef Mapping get(self, str folder, int64_t base, int64_t size)
    cdef void drop(self, str folder, int64_t base)
    # Drops the mappings of all folders below one.
    cpdef drop_below(self, str folder)


cdef class WritableMappings:
    # How many queues may have their newest file mapped for writing; the others are mapped again
    # when they get an entry. One thread appends, and it alone takes mappings away.
    cdef readonly int limit
    """Number of queues that may have a file mapped for writing."""
    cdef object queues          # deque of ConsumeQueue, in the order in which they were mapped


cdef class QueueFiles:
    # The files of one queue. A base is the byte offset in the queue that a file is named after.
    cdef readonly str folder
    """The folder of the queue's files."""
    cdef readonly int64_t size
    """Bytes of each file."""
    cdef readonly list misfits
    """Paths of the files of another size that scan() found."""
    cdef list bases                 # of the files on disk, ordered; replaced, never edited in place
    cdef object files               # FileSystem
    cdef MappingCache cache
    cdef bint folder_dirty          # files were added or removed since the last sync of the folder

    # Lists the folder again, skipping (with a warning) files that are not queue files.
    cdef list scan(self)
    # For reading; None when there is no such file.
    cdef Mapping mapped(self, int64_t base)
    # For writing; creates the file if it does not exist.
    cdef Mapping writable(self, int64_t base)
    cdef bint has_data_behind(self, Mapping mapping, int64_t start) except -1
    # Drops the mapping for reading: a queue without readers needs none.
    cdef void forget(self, int64_t base)
    cdef remove(self, int64_t base)
    # Syncs the present content of the file; the second does the same for the folder.
    cdef sync(self, int64_t base)
    cdef sync_folder(self)
    cdef sync_path(self, str path)
    # Removes the folder itself, unless it has foreign files.
    cdef remove_folder(self)
