# No Python names: compiled code uses retried.pxd.
