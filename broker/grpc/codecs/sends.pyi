# No Python names: compiled code uses sends.pxd.
