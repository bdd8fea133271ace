# No Python names: compiled code uses statistics.pxd.
