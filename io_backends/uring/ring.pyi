# No Python names: compiled code uses ring.pxd.
