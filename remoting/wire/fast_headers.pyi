# Compiled code uses fast_headers.pxd.

INVISIBLE_MAX_MS: int
