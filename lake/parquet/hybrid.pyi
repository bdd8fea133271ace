# No Python names: compiled code uses hybrid.pxd.
