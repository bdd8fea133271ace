# No Python names: compiled code uses fast_headers.pxd.
