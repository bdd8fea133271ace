# No Python names: compiled code uses zeros.pxd.
