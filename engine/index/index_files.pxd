from libc.stdint cimport int64_t

from congreve.engine.log.commit_log cimport CommitLog


cdef class IndexFiles:
    cdef CommitLog log
    cdef object config
    cdef object folder
    cdef object disk                # FileSystem
    cdef object files               # tuple of IndexFile, oldest first; replaced, never edited

    cdef object matching(self, int64_t offset, bytes topic, bytes key, int64_t begin_ms,
                         int64_t end_ms)
