# No Python names: compiled code uses zero_copy.pxd.
