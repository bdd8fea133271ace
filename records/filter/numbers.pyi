# No Python names: compiled code uses numbers.pxd.
