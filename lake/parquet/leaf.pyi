# No Python names: compiled code uses leaf.pxd.
