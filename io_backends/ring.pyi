"""Nothing for Python: `uring.UringBackend` is what writes through a ring."""
