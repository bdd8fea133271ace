"""Nothing for Python; see filternumbers.pxd."""
