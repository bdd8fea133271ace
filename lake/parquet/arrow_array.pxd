# Arrow's C data interface: the columns of a batch as pointers.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    #include <stdint.h>
    struct ArrowArray {
      int64_t length;
      int64_t null_count;
      int64_t offset;
      int64_t n_buffers;
      int64_t n_children;
      const void **buffers;
      struct ArrowArray **children;
      struct ArrowArray *dictionary;
      void (*release)(struct ArrowArray *);
      void *private_data;
    };
    #endif
    """
    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        const void **buffers
        ArrowArray **children
