# Numbers that one thread stores and others load, for code above the engine.
from congreve.io_backends.atomic cimport (
    add_relaxed,
    full_barrier,
    load_acquire,
    load_acquire_bits,
    store_release,
)
