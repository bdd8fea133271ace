# No Python names: compiled code uses settles.pxd.
