"""The io_uring backend."""
